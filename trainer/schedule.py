"""The learning rate of each step; without torch, so that commands can say it."""

from __future__ import annotations

import math

from trainer.config.settings import ScheduleConfig


def learning_rate(schedule: ScheduleConfig, peak: float, step: int, steps: int) -> float:
    """Return the learning rate of step 1 .. `steps`: linear warm-up to `peak`, then the decay.

    The last step gets `final_fraction` of the peak. A pure function: there is no state to save.
    """
    if step <= schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    if schedule.kind == "constant":
        return peak
    done = (step - schedule.warmup_steps) / (steps - schedule.warmup_steps)
    left = 1 - done if schedule.kind == "linear" else (1 + math.cos(math.pi * done)) / 2
    return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * left)
