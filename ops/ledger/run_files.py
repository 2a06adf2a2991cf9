"""Phases of a run from its own files, metrics.jsonl and events.jsonl: exact, also long after the run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ops.cluster import ClusterError
from ops.ledger.model import Bucket, Cause, Phase

Line = Mapping[str, Any]

METRICS: Final = "metrics.jsonl"
EVENTS: Final = "events.jsonl"

_REASONS: Final[Mapping[str, Cause]] = {"done": Cause.DONE, "preempted": Cause.PREEMPTION}
"""By `reason` of the event `finished`."""


def read_phases(folder: Path, run: str) -> list[Phase]:
    """Return the phases of the run in a folder. Raises ClusterError if it holds no run."""
    events, metrics = (_lines(folder / name) for name in (EVENTS, METRICS))
    if not events and not metrics:
        raise ClusterError(
            f"{folder}: no run found ({EVENTS}, {METRICS}); pass the folder that contains them"
        )
    return phases(run, events, metrics)


def _lines(file: Path) -> list[Line]:
    """Return the complete lines of a file; none if it does not exist."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # The last line may be cut off.
    return [one for one in found if isinstance(one, dict)]


def phases(run: str, events: Sequence[Line], metrics: Sequence[Line]) -> list[Phase]:
    """Return a phase for each attempt that made a step; lines are in file order."""
    dropped = [part for event in events for part in event.get("dropped") or ()]
    attempts = sorted({int(one["attempt"]) for one in (*metrics, *dropped)})
    found = []
    for attempt in attempts:
        steps = _of(attempt, metrics)
        lost = _of(attempt, dropped)
        ends = [float(s["time"]) for s in steps] + [float(d["until"]) for d in lost]
        starts = [float(s["time"]) - _step(s) for s in steps]
        starts += [float(d["until"]) - float(d["seconds"]) for d in lost]
        collectives = _sum(steps, "collective_time_s")
        stalls = _sum(steps, "checkpoint_stall_s")
        work = _sum(steps, "step_time_s") - _sum(steps, "loader_time_s") - collectives
        found.append(
            Phase(
                run=run,
                attempt=attempt,
                start=min(starts),
                end=max(ends),
                seconds={
                    Bucket.PRODUCTIVE.value: max(0.0, work),
                    Bucket.REPLAYED.value: _sum(lost, "seconds"),
                    Bucket.COLLECTIVES.value: collectives,
                    Bucket.SAVE.value: stalls,
                },
                steps=len(steps),
                tokens=_sum(steps, "tokens"),
                ended=_ended(_of(attempt, events), last=attempt == attempts[-1]),
            )
        )
    return found


def _step(line: Line) -> float:
    return float(line.get("step_time_s") or 0.0) + float(line.get("checkpoint_stall_s") or 0.0)


def _ended(events: Iterable[Line], *, last: bool) -> str:
    """Return why an attempt ended; empty for the last one without an end, which may go on."""
    reasons = [str(event.get("reason", "")) for event in events if event["event"] == "finished"]
    if reasons:
        return _REASONS.get(reasons[-1], Cause.FAILURE).value
    return "" if last else Cause.UNKNOWN.value


def _of(attempt: int, lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if line.get("attempt") == attempt]


def _sum(lines: Iterable[Line], key: str) -> float:
    return sum(float(line.get(key) or 0.0) for line in lines)
