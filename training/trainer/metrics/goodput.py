"""Goodput: a run's time by cause over all attempts, and how well it resumed.

Computed from events.jsonl and metrics.jsonl alone. The clock starts with the first rank's process, so
time in a queue before the first attempt is not included. Work after an attempt's last line (a step cut
off by SIGKILL) counts as waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

Line = Mapping[str, Any]

CAUSES: Final = {
    "productive": "steps that count, without the wait for their data",
    "replay": "steps that were done again later, because no checkpoint had them",
    "startup": "from an attempt's first instruction until its model, data and state are there",
    "loader": "steps waiting for their data",
    "checkpoint": "training standing still for a save, the last one included",
    "evaluation": "held-out losses",
    "waiting": "from an attempt's last sign of life to the next one's start",
    "other": "the rest: first exchange, logging, shutting down",
}
"""Causes that time is split into; they add up to the wall clock."""


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """Time and resumes of one run."""

    seconds: Mapping[str, float]
    """By cause, all of CAUSES."""
    attempts: int
    resumes_due: int
    """Attempts that found a committed checkpoint of an earlier one."""
    resumes_done: int
    """Of those, how many resumed and made a step or finished."""
    steps_replayed: int

    @property
    def wall_s(self) -> float:
        """Wall clock in seconds."""
        return sum(self.seconds.values())

    @property
    def fraction(self) -> float | None:
        """Productive fraction of the wall clock; None for a run without time."""
        return self.seconds["productive"] / self.wall_s if self.wall_s else None

    @property
    def resume_success(self) -> float | None:
        """Fraction of due resumes that worked; None when none was due."""
        return self.resumes_done / self.resumes_due if self.resumes_due else None


def compute_goodput(events: Sequence[Line], metrics: Sequence[Line]) -> Goodput:
    """Split the time of a run by cause; lines are in file order."""
    dropped = [part for event in events for part in event.get("dropped", ())]
    attempts = sorted({int(line["attempt"]) for line in (*events, *metrics)})
    lives = [_life(number, events, metrics, dropped) for number in attempts]
    seconds = dict.fromkeys(CAUSES, 0.0)
    for begin, end, inside in lives:
        for cause, value in inside.items():
            seconds[cause] += value
        seconds["other"] += max(0.0, end - begin - sum(inside.values()))
    seconds["waiting"] = sum(max(0.0, b[0] - a[1]) for a, b in pairwise(lives))
    due = _resumes_due(events)
    return Goodput(
        seconds=seconds,
        attempts=max(attempts, default=0),
        resumes_due=len(due),
        resumes_done=sum(_resumed(number, events, metrics, dropped) for number in due),
        steps_replayed=sum(int(part["steps"]) for part in dropped),
    )


def _life(
    attempt: int, events: Sequence[Line], metrics: Sequence[Line], dropped: Sequence[Line]
) -> tuple[float, float, dict[str, float]]:
    """Return begin and end of an attempt in Unix seconds, and its seconds by cause."""
    reported = _lines_of(attempt, events)
    steps = _lines_of(attempt, metrics)
    lost = _lines_of(attempt, dropped)
    startup = _sum(reported, "startup_s")
    times = [line["time"] for line in (*reported, *steps) if "time" in line]
    times += [line["until"] for line in lost]
    started = [event["time"] for event in reported if event["event"] == "started"]
    begin = min(started or times, default=0.0) - startup
    evaluated = [event for event in reported if event["event"] == "evaluated"]
    inside = {
        "productive": _sum(steps, "step_time_s") - _sum(steps, "loader_time_s"),
        "replay": _sum(lost, "seconds"),
        "startup": startup,
        "loader": _sum(steps, "loader_time_s"),
        "checkpoint": _sum(steps, "checkpoint_stall_s") + _sum(reported, "saving_s"),
        "evaluation": _sum(evaluated, "seconds"),
    }
    return begin, max(times, default=0.0), inside


def _resumes_due(events: Sequence[Line]) -> list[int]:
    """Return attempts after a commit of an earlier one, including those without any line."""
    commits = [int(e["attempt"]) for e in events if e["event"] == "checkpoint_commit"]
    last = max((int(e["attempt"]) for e in events), default=0)
    return list(range(min(commits) + 1, last + 1)) if commits else []


def _resumed(
    attempt: int, events: Sequence[Line], metrics: Sequence[Line], dropped: Sequence[Line]
) -> bool:
    """Return whether this attempt resumed and made a step or finished."""
    reported = {event["event"] for event in _lines_of(attempt, events)}
    further = _lines_of(attempt, metrics) or _lines_of(attempt, dropped) or "finished" in reported
    return "resumed" in reported and bool(further)


def _lines_of(attempt: int, lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if line["attempt"] == attempt]


def _sum(lines: Iterable[Line], key: str) -> float:
    return sum(float(line.get(key) or 0.0) for line in lines)
