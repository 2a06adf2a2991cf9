"""What is sent of a run, in which batches, and how far it got."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from trainyard.contract import EVENTS_FILE, METRICS_FILE
from trainyard.tracking.tail import Tail

CURSOR_FILE: Final = "mlflow.json"
"""In the run directory: which MLflow run this is, and what it has."""
LOCK_FILE: Final = ".mlflow.lock"

_STEP_KEYS: Final = (
    "loss",
    "lr",
    "grad_norm",
    "tokens_per_s",
    "samples_per_s",
    "mfu",
    "step_time_s",
    "loader_time_s",
    "collective_time_s",
    "checkpoint_stall_s",
)
_EVENT_KEYS: Final = {
    ("evaluated", "loss"): "evaluation_loss",
    ("checkpoint_commit", "seconds"): "checkpoint_write_s",
    ("checkpoint_commit", "bytes"): "checkpoint_bytes",
    ("resumed", "attempt"): "resumed_attempt",
}
_BATCH_LINES: Final = 90
"""With ten numbers each that stays under MLflow's limit of 1,000 per request."""


@dataclass(frozen=True)
class Point:
    """One number of one step."""

    key: str
    value: float
    unix_ms: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Progress of the upload; resending a batch is idempotent: points keep their timestamps."""

    uri: str
    run_id: str
    step: int = 0
    """Newest step sent; a step that is done again has the same loss and is not sent again."""
    events: int = 0
    """Entries of events.jsonl sent."""

    @classmethod
    def read(cls, run_dir: Path) -> Cursor | None:
        """Where the last sending stopped; None when there was none."""
        try:
            return cls(**json.loads((run_dir / CURSOR_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, run_dir: Path) -> None:
        """Note it; a crash leaves the old one."""
        fresh = run_dir / f".{CURSOR_FILE}-{os.getpid()}"
        fresh.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        fresh.replace(run_dir / CURSOR_FILE)


class TrackingServer(Protocol):
    """What is asked of MLflow; any method may raise any exception."""

    def has_run(self, run_id: str) -> bool:
        """Whether it has this run."""

    def create_run(self, experiment: str, name: str, tags: Mapping[str, str]) -> str:
        """A new run in the experiment of this name, which is made when missing; its id."""

    def log_params(self, run_id: str, parameters: Mapping[str, str]) -> None:
        """Parameters, once."""

    def log_metrics(self, run_id: str, points: Sequence[Point]) -> None:
        """At most 1,000 numbers."""

    def set_status(self, run_id: str, status: str) -> None:
        """RUNNING, SCHEDULED, FINISHED or FAILED."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What is sent at once, and how far that gets."""

    parameters: Mapping[str, str]
    points: Sequence[Point]
    after: Cursor


@dataclass(kw_only=True)
class MlflowSync:
    """Sends one run directory; call `send` as often as wanted."""

    server: TrackingServer
    run_dir: Path
    uri: str
    experiment: str
    name: str
    tags: Mapping[str, str]
    wait_for_metrics: bool = False
    """Make no MLflow run before metrics.jsonl has a line."""
    _cursor: Cursor | None = None
    _unsent: Batch | None = None
    _last: Mapping[str, Any] | None = None
    """Newest event read."""
    _events_read: int = 0

    def __post_init__(self) -> None:
        self._metrics = Tail(self.run_dir / METRICS_FILE)
        self._events = Tail(self.run_dir / EVENTS_FILE)

    def send(self) -> int:
        """Everything new; how many numbers that was. Raises what the server raises."""
        if self._cursor is None and not self._written():
            return 0
        cursor = self._cursor or self._begin()
        sent = 0
        while batch := self._unsent or self._next(cursor):
            self._unsent = batch
            if batch.parameters:
                self.server.log_params(cursor.run_id, batch.parameters)
            if batch.points:
                self.server.log_metrics(cursor.run_id, batch.points)
            sent += len(batch.points)
            cursor = self._cursor = batch.after
            self._unsent = None
            cursor.write(self.run_dir)
        return sent

    def end(self) -> None:
        """Set the run's status from its newest event."""
        if self._cursor and self._last:
            self.server.set_status(self._cursor.run_id, mlflow_status(self._last))

    def _written(self) -> bool:
        """Whether there is anything to make a run for."""
        file = self.run_dir / METRICS_FILE
        return not self.wait_for_metrics or (file.exists() and file.stat().st_size > 0)

    def _begin(self) -> Cursor:
        """The MLflow run that earlier attempts wrote to, or a new one."""
        cursor = Cursor.read(self.run_dir)
        if cursor is None or cursor.uri != self.uri or not self.server.has_run(cursor.run_id):
            run_id = self.server.create_run(self.experiment, self.name, self.tags)
            cursor = Cursor(uri=self.uri, run_id=run_id)
            cursor.write(self.run_dir)
        self.server.set_status(cursor.run_id, "RUNNING")
        self._cursor = cursor
        return cursor

    def _next(self, cursor: Cursor) -> Batch | None:
        """Events first, then steps; None when there is nothing new."""
        events = self._events.lines(_BATCH_LINES)
        steps = [] if events else self._metrics.lines(_BATCH_LINES)
        if not events and not steps:
            return None
        known = max(0, cursor.events - self._events_read)
        self._events_read += len(events)
        self._last = events[-1] if events else self._last
        fresh = events[known:] + [line for line in steps if line["step"] > cursor.step]
        begun = [e for e in events if cursor.events == 0 and e["event"] == "started"]
        return Batch(
            parameters=dict(flatten(begun[0].get("config", {}))) if begun else {},
            points=[point for line in fresh for point in points_from_line(line)],
            after=replace(
                cursor,
                step=max([cursor.step, *(line["step"] for line in steps)]),
                events=max(cursor.events, self._events_read),
            ),
        )


def points_from_line(line: Mapping[str, Any]) -> Iterator[Point]:
    """The numbers of a line of metrics.jsonl or of events.jsonl."""
    unix_ms, step = int(line.get("time", 0) * 1000), int(line.get("step", 0))
    if "event" in line:
        keys = {key: name for (event, key), name in _EVENT_KEYS.items() if event == line["event"]}
    else:
        keys = {key: key for key in _STEP_KEYS}
    for key, name in keys.items():
        value = line.get(key)
        if isinstance(value, int | float):
            yield Point(name, float(value), unix_ms, step)


def mlflow_status(event: Mapping[str, Any]) -> str:
    """Return the MLflow status of an ended run from its newest event."""
    if event.get("event") != "finished":
        return "FAILED"
    reason = str(event.get("reason"))
    return {"done": "FINISHED", "preempted": "SCHEDULED"}.get(reason, "FAILED")


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)
