"""The loss scale of float16, whose smallest numbers are too large for many gradients.

The loss is multiplied by the scale before the backward pass, and the gradients are divided by it afterwards. Both
are exact, because the scale is a power of two. If a gradient overflows float16, the step changes no weight and the
scale is halved; after many steps without an overflow it is doubled, as by torch.amp.GradScaler. GradScaler keeps
its state on the device of each rank. Here the loop knows the gradient norm of all ranks anyway, and the scale is
part of the progress: a resumed run and a group that joins have it.
"""

from __future__ import annotations

from typing import Final

from trainer.checkpoint.contents import Progress
from trainer.config.settings import TrainerConfig

FIRST: Final = 2.0**16
"""Scale of the first step, as GradScaler's."""
GROWTH_STEPS: Final = 2000
"""Steps without an overflow after which the scale is doubled, as GradScaler's."""
LEAST: Final = 1.0
"""Gradients that overflow at this scale have diverged."""


def scale_of(config: TrainerConfig, progress: Progress) -> float | None:
    """Return the scale of the next step; None for formats that need none."""
    if config.precision.compute != "float16":
        return None
    return progress.loss_scale or FIRST


def may_overflow(scale: float | None) -> bool:
    """Return whether gradients that are not finite only show that the scale is too large."""
    return scale is not None and scale > LEAST


def scale_after(scale: float, steps: int, *, finite: bool) -> tuple[float, int]:
    """Return the scale after a step, and the steps since it changed or an update was skipped.

    `steps`: before this one; `finite`: whether its gradients were.
    """
    if not finite:
        return scale / 2, 0
    return (scale * 2, 0) if steps + 1 >= GROWTH_STEPS else (scale, steps + 1)
