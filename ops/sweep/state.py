"""State of a sweep, which its ConfigMap in the team's namespace holds as JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ops import objects
from ops.sweep.space import Scalar

WAITING: Final = "waiting"
"""Not submitted yet."""
QUEUED: Final = "queued"
"""Submitted and not admitted."""
RUNNING: Final = "running"
DONE: Final = "done"
STOPPED: Final = "stopped"
"""Ended early, by comparison with its peers or by `sweep stop`."""
FAILED: Final = "failed"
DELETED: Final = "deleted"
"""Its object was deleted by other means; it is not submitted again."""
OVER_BUDGET: Final = "over budget"
"""Never submitted."""

ACTIVE: Final = frozenset({QUEUED, RUNNING})
ENDED: Final = frozenset({DONE, STOPPED, FAILED, DELETED, OVER_BUDGET})


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run of a sweep, and what is known of it."""

    run_id: str
    name: str
    parameters: Mapping[str, Scalar]
    state: str = WAITING
    reason: str = ""
    step: int | None = None
    """Last step with a value."""
    value: float | None = None
    """The sweep's metric at that step."""
    rungs: Mapping[int, float] = field(default_factory=dict)
    """What it had at each rung that it was judged at, by the rung's step."""
    admitted: str | None = None
    """RFC 3339 time stamp of its first admission."""
    ended: str | None = None
    hours: float = 0.0
    """From its first admission to its end, or until it was last seen: an upper bound of what it pays for."""

    def over(self, state: str, reason: str, at: dt.datetime, max_hours: float | None) -> Trial:
        found = dataclasses.replace(self, state=state, reason=reason, ended=objects.stamp(at))
        return found.until(at, max_hours)

    def until(self, at: dt.datetime, max_hours: float | None) -> Trial:
        """Return the run with its hours up to a time; Kueue ends it after `max_hours` of admitted time."""
        since = objects.time(self.admitted)
        hours = max(0.0, (at - since).total_seconds() / 3600) if since else 0.0
        return dataclasses.replace(self, hours=min(hours, max_hours or math.inf))

    def with_values(self, values: Mapping[int, float]) -> Trial:
        """Return the run with its last value; NaN stays, so that a diverged run is seen as such."""
        last = max(values, default=None)
        return self if last is None else dataclasses.replace(self, step=last, value=values[last])


@dataclass(frozen=True, kw_only=True)
class SweepState:
    """A sweep: its settings, and its runs in the order of submission."""

    sweep: str
    """NAME-vVERSION."""
    name: str
    team: str
    method: str
    metric: str
    maximize: bool
    parallel: int
    usd_per_hour: float | None
    """Highest price of one run; None: unknown."""
    max_hours: float | None
    """Limit of one run."""
    cost_cap_usd: float | None
    trials: tuple[Trial, ...]
    closed: bool = False
    """Whether `sweep stop` has ended it: nothing more is submitted."""

    @property
    def active(self) -> tuple[Trial, ...]:
        """Runs that are submitted and have not ended."""
        return tuple(one for one in self.trials if one.state in ACTIVE)

    @property
    def ended(self) -> bool:
        """Whether nothing runs and nothing more will be submitted."""
        left = {one.state for one in self.trials} - ENDED
        return not left or (self.closed and left == {WAITING})

    @property
    def spent_usd(self) -> float | None:
        """Cost of all runs so far, at most; None: no price is known."""
        if self.usd_per_hour is None:
            return None
        return sum(one.hours for one in self.trials) * self.usd_per_hour

    def next_fits_budget(self) -> bool:
        """Return whether one more run stays within the cost cap, even if all active ones use all of their time."""
        if self.cost_cap_usd is None or self.usd_per_hour is None or self.max_hours is None:
            return True
        committed = sum(
            max(one.hours, self.max_hours) if one.state in ACTIVE else one.hours
            for one in self.trials
        )
        cost = (committed + self.max_hours) * self.usd_per_hour
        return cost <= self.cost_cap_usd * (1 + 1e-9)

    def best(self) -> Trial | None:
        """Return the run with the best last value: of those that are done, else of all.

        Values of runs that were stopped early are of earlier steps.
        """
        sign = -1.0 if self.maximize else 1.0
        done = [one for one in self.trials if one.state == DONE and one.value is not None]
        among = done or self.trials
        known = [(sign * one.value, one) for one in among if one.value is not None]
        finite = [pair for pair in known if math.isfinite(pair[0])]
        return min(finite, key=lambda pair: pair[0])[1] if finite else None

    def updated(self, trials: Iterable[Trial]) -> SweepState:
        changed = {one.run_id: one for one in trials}
        merged = tuple(changed.get(one.run_id, one) for one in self.trials)
        return dataclasses.replace(self, trials=merged)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SweepState:
        """Parse what `to_json` wrote. Raises ValueError for another form."""
        try:
            values = json.loads(text)
            trials = tuple(_trial(one) for one in values.pop("trials"))
            return cls(**values, trials=trials)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not the state of a sweep: {error}") from None


def _trial(values: dict[str, Any]) -> Trial:
    rungs = {int(step): float(value) for step, value in values.pop("rungs").items()}
    return Trial(**values, rungs=rungs)
