"""The section `sweep` of a run file, which makes it a family of runs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from infra.sections.types import Bool, Int, Number, Str, StrictModel

RUNS_MAX = 500
"""Runs of a sweep: its state is one ConfigMap of at most 1 MiB."""


class AshaSection(StrictModel):
    """When method `asha` compares runs and stops the worse ones."""

    min_steps: Int = Field(ge=1, description="a number of steps")
    """Step of the first comparison; the next ones follow at `reduction` times the step before."""
    reduction: Int = Field(default=3, ge=2, le=10)
    """One of so many runs continues after each comparison."""


class RangeSection(StrictModel):
    """Numbers from which values are sampled."""

    min: Number = Field(description="a number")
    """Smallest value."""
    max: Number = Field(description="a number, more than min")
    """Largest value."""
    scale: Literal["linear", "log"] = "linear"
    """log: every order of magnitude has the same probability; min must be above 0."""
    integer: Bool = False
    """Whether values are whole numbers."""


class SweepSection(StrictModel):
    """Makes the file a family of runs with different hyperparameters; see `trainyard sweep`."""

    method: Literal["grid", "random", "asha"] = Field(description="grid, random or asha")
    """grid: all combinations of listed values. random: samples. asha: samples, the worse of which stop early."""
    parameters: dict[str, Any] = Field(
        min_length=1,
        description="values by setting, such as optimizer.learning_rate: [0.001, 0.01]",
    )
    """Values by dotted setting of the trainer's configuration, or by `env.NAME` of `program.env`: a list, or a
    range `{min, max, scale: linear | log, integer}` that is sampled."""
    runs: Int | None = Field(default=None, ge=1, le=RUNS_MAX)
    """Number of runs; with `grid` the most that the combinations may be. Default: all combinations."""
    parallel: Int = Field(default=4, ge=1, le=RUNS_MAX)
    """Runs that are queued or running at a time."""
    metric: Str = "loss"
    """Metric that runs are compared by."""
    goal: Literal["minimize", "maximize"] = "minimize"
    """Whether a smaller or a larger value of the metric is better."""
    seed: Int = Field(default=0, ge=0)
    """Seed of the samples."""
    cost_cap_usd: Number | None = Field(default=None, gt=0)
    """Limit in USD of all runs together, at the highest price that each can be charged; requires `maxHours`."""
    asha: AshaSection | None = None
    """Comparisons of method `asha`, and only of it."""
