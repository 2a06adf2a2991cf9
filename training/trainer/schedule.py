"""The learning rate of a step: a pure function, so that there is no state to save."""

from __future__ import annotations

import math

from training.trainer.config import ScheduleConfig


def learning_rate(schedule: ScheduleConfig, peak: float, step: int, steps: int) -> float:
    """Learning rate of step 1 .. `steps`: linear warm-up to `peak`, then the named decay.

    The last step gets `final_fraction` of the peak.
    """
    if step <= schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    if schedule.kind == "constant":
        return peak
    done = (step - schedule.warmup_steps) / (steps - schedule.warmup_steps)
    left = 1 - done if schedule.kind == "linear" else (1 + math.cos(math.pi * done)) / 2
    return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * left)
