"""Batch arithmetic: samples per step, ranks and learning rates.

Standard library only: the trainer uses it, and so does the check of a run file before anything is deployed.
A data rank is a rank that reads its own samples; ranks that share one model (tensor, pipeline) read the same
samples and count once.
"""

from __future__ import annotations

from typing import Final

from trainer.config_errors import ConfigIssue

LARGEST_USUAL_SCALE: Final = 4.0
"""Beyond this factor, up or down, a linearly scaled learning rate is a guess."""


def effective_batch(micro_samples: int, accumulation: int, data_ranks: int) -> int:
    """Samples of one optimizer step; `accumulation` is forward passes per step on each rank."""
    return micro_samples * accumulation * data_ranks


def accumulation_steps(global_samples: int, micro_samples: int, data_ranks: int) -> int | None:
    """Forward passes per step on each data rank; None when the batch does not divide."""
    passes, left = divmod(global_samples, effective_batch(micro_samples, 1, data_ranks))
    return None if left else passes


def batch_issues(global_samples: int, micro_samples: int, data_ranks: int) -> list[ConfigIssue]:
    """Return the issue of a batch for this many data ranks; empty when it divides."""
    if accumulation_steps(global_samples, micro_samples, data_ranks):
        return []
    pass_samples = effective_batch(micro_samples, 1, data_ranks)
    below = global_samples // pass_samples * pass_samples
    near = [str(n) for n in (below, below + pass_samples) if n]
    return [
        ConfigIssue(
            path="batch.global_samples",
            problem=f"{global_samples} is not valid",
            valid=f"must be a multiple of micro_samples x data ranks = {micro_samples} x {data_ranks}",
            action=f"use {' or '.join(near)}, or change batch.micro_samples",
            code="out-of-range",
        )
    ]


def scaled_learning_rate(
    learning_rate: float, global_samples: int, reference_samples: int | None
) -> float:
    """The peak by the linear rule: k times the batch, k times the learning rate.

    `learning_rate` was found with `reference_samples` per step; None: it is not scaled.
    Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2.1.
    """
    if reference_samples is None:
        return learning_rate
    return learning_rate * (global_samples / reference_samples)


def scaling_warnings(
    learning_rate: float, global_samples: int, reference_samples: int | None, warmup_steps: int
) -> list[str]:
    """Return warnings about a linearly scaled learning rate, one line each."""
    if reference_samples is None:
        return []
    scale = global_samples / reference_samples
    peak = scaled_learning_rate(learning_rate, global_samples, reference_samples)
    warnings = []
    if not 1 / LARGEST_USUAL_SCALE <= scale <= LARGEST_USUAL_SCALE:
        warnings.append(
            f"optimizer.scale_learning_rate: {global_samples} / {reference_samples} samples scale "
            f"the peak by {scale:.3g} to {peak:.3g}; linear scaling is reliable up to a factor of "
            f"{LARGEST_USUAL_SCALE:g}; tune optimizer.learning_rate for this batch and use null"
        )
    if scale > 1 and warmup_steps == 0:
        warnings.append(
            f"schedule.warmup_steps: is 0 with a peak scaled up to {peak:.3g}; large batches "
            "diverge without a warm-up; set it above 0"
        )
    return warnings
