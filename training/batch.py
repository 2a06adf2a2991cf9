"""Batch arithmetic: one home for how samples per step, ranks and learning rates go together.

Standard library only: the trainer counts with it, and so does the check of a run file before
anything is deployed. A data rank is a rank that reads samples of its own; ranks that share one
model (tensor, pipeline) read the same samples and count once.
"""

from __future__ import annotations

from typing import Final

LARGEST_USUAL_SCALE: Final = 4.0
"""Beyond this factor, up or down, a linearly scaled learning rate is a guess."""


def effective_batch(micro_samples: int, accumulation: int, data_ranks: int) -> int:
    """Samples of one optimizer step; `accumulation` is forward passes per step on each rank."""
    return micro_samples * accumulation * data_ranks


def accumulation_steps(global_samples: int, micro_samples: int, data_ranks: int) -> int | None:
    """Forward passes per step on each data rank; None when the batch does not divide."""
    passes, left = divmod(global_samples, effective_batch(micro_samples, 1, data_ranks))
    return None if left else passes


def batch_mistakes(global_samples: int, micro_samples: int, data_ranks: int) -> list[str]:
    """What is wrong with a batch for this many data ranks, one line; empty when it divides."""
    if accumulation_steps(global_samples, micro_samples, data_ranks):
        return []
    pass_samples = effective_batch(micro_samples, 1, data_ranks)
    below = global_samples // pass_samples * pass_samples
    near = [str(n) for n in (below, below + pass_samples) if n]
    return [
        f"batch.global_samples: got {global_samples}; allowed a multiple of "
        f"micro_samples x data ranks = {micro_samples} x {data_ranks}; "
        f"take {' or '.join(near)}, or change batch.micro_samples"
    ]


def scaled_learning_rate(
    learning_rate: float, global_samples: int, reference_samples: int | None
) -> float:
    """The peak by the linear rule: k times the batch, k times the learning rate.

    `learning_rate` was found with `reference_samples` per step; None: it is left as it is.
    Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2.1.
    """
    if reference_samples is None:
        return learning_rate
    return learning_rate * (global_samples / reference_samples)


def scaling_warnings(
    learning_rate: float, global_samples: int, reference_samples: int | None, warmup_steps: int
) -> list[str]:
    """What is doubtful about a linearly scaled learning rate, one line each."""
    if reference_samples is None:
        return []
    scale = global_samples / reference_samples
    peak = scaled_learning_rate(learning_rate, global_samples, reference_samples)
    warnings = []
    if not 1 / LARGEST_USUAL_SCALE <= scale <= LARGEST_USUAL_SCALE:
        warnings.append(
            f"optimizer.scale_learning_rate: {global_samples} / {reference_samples} samples scale "
            f"the peak by {scale:.3g} to {peak:.3g}; usual up to {LARGEST_USUAL_SCALE:g} times "
            "either way; find optimizer.learning_rate for this batch and use null"
        )
    if scale > 1 and warmup_steps == 0:
        warnings.append(
            f"schedule.warmup_steps: got 0 with a peak scaled up to {peak:.3g}; usual > 0; "
            "large batches diverge without a warm-up"
        )
    return warnings
