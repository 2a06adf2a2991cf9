"""metrics.jsonl and events.jsonl: what other programs read about a run.

Rank 0 writes both. metrics.jsonl has each completed step exactly once, in order: a resumed run
first drops the steps that it will do again, by writing a new file in place of the old one (so that
a replaced attempt which still writes, writes into the old one). events.jsonl only grows.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

Listener = Callable[[dict[str, Any]], None]

Line = tuple[str, dict[str, Any]]
"""A line as it stands, and what it says."""


@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """One line of metrics.jsonl."""

    step: int
    loss: float
    """Mean over the global batch, nats per token; JSON keeps every bit of it."""
    tokens: int
    """Predicted in this step over all ranks."""
    lr: float
    step_time_s: float
    """From the start of the step to its end, loader included, evaluation and saving not."""
    loader_time_s: float
    """Of the step, waiting for its samples."""
    attempt: int
    time: float
    """Unix seconds when the step ended."""
    tokens_per_s: float
    samples_per_s: float
    mfu: float | None
    """Model FLOPs utilisation, 0 to 1 of dense bf16; null where the device's peak is not known."""
    grad_norm: float
    """Global 2-norm of the gradients before clipping."""
    collective_time_s: float
    """Of the step, waiting for the other ranks in the exchange that ends it. Gradients travel
    during the backward pass and are not in it."""
    checkpoint_stall_s: float
    """Before the step, not in `step_time_s`: training stood still for the save after the last one."""


class MetricsLog:
    """The appended metrics of one attempt; on ranks other than 0 nothing is written."""

    def __init__(self, file: Path, resumed_step: int, *, enabled: bool) -> None:
        """Keep steps 1 .. `resumed_step` of what is there, drop the rest."""
        self._stream: FileIO | None = None
        self.dropped: list[dict[str, Any]] = []
        """What the dropped steps had cost: one entry per attempt that made them."""
        if enabled:
            lines = _whole_lines(file)
            self.dropped = dropped_steps(lines, resumed_step)
            kept = "".join(line + "\n" for line in kept_lines(lines, resumed_step))
            fresh = file.with_name(f".{file.name}-{os.getpid()}")
            fresh.write_text(kept, encoding="utf-8")
            fresh.replace(file)
            self._stream = file.open("ab", buffering=0)

    def append(self, metrics: StepMetrics) -> None:
        """One line, visible to readers at once; durable with the next `sync`. Raises OSError."""
        if self._stream:
            line = f"{json.dumps(vars(metrics))}\n".encode()
            if self._stream.write(line) != len(line):
                raise OSError(errno.ENOSPC, "a line was cut", self._stream.name)

    def sync(self) -> None:
        """Make every line durable: done before a checkpoint, so that its steps are all here."""
        if self._stream:
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Make it durable and stop writing."""
        if self._stream:
            self.sync()
            self._stream.close()
            self._stream = None


def kept_lines(lines: Sequence[Line], last_step: int) -> list[str]:
    """The text of steps 1 .. `last_step`, each once, in order."""
    kept: dict[int, str] = {}
    for text, values in lines:
        if 1 <= values["step"] <= last_step:
            kept.setdefault(values["step"], text)
    return [kept[step] for step in sorted(kept)]


def dropped_steps(lines: Sequence[Line], last_step: int) -> list[dict[str, Any]]:
    """What the steps after `last_step` had cost, in seconds, by the attempt that made them."""
    found: dict[int, dict[str, Any]] = {}
    for _, values in lines:
        if values["step"] > last_step and "time" in values:
            attempt = int(values["attempt"])
            part = found.setdefault(attempt, {"attempt": attempt, "steps": 0, "seconds": 0.0})
            part["steps"] += 1
            part["seconds"] += values["step_time_s"] + values["checkpoint_stall_s"]
            part["until"] = values["time"]
    return [found[attempt] for attempt in sorted(found)]


def _whole_lines(file: Path) -> list[Line]:
    """Every line that is a step; torn ones are left out."""
    found: list[Line] = []
    if file.exists():
        for text in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                values = json.loads(text)
            except ValueError:
                continue
            if isinstance(values, dict) and isinstance(values.get("step"), int):
                found.append((text, values))
    return found


class EventLog:
    """The run's diary; each entry is durable when `write` returns. Threads may share it."""

    def __init__(self, file: Path, attempt: int, *, enabled: bool) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._early: list[dict[str, Any]] | None = []
        """What was written before anybody could listen; None: it is known who does."""
        self._stream = file.open("a", encoding="utf-8") if enabled else None

    def write(self, event: str, step: int, **details: Any) -> None:
        """One entry: its name, the time in Unix seconds, the step, the attempt, then details."""
        if self._stream is None:
            return
        entry = {"event": event, "time": time.time(), "step": step, "attempt": self._attempt}
        entry.update(details)
        with self._lock:
            self._stream.write(json.dumps(entry) + "\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
            if self._early is not None:
                self._early.append(entry)
        if self._listener:
            self._listener(entry)

    def listen(self, listener: Listener | None) -> None:
        """Tell every entry once it is written, those of this attempt's start first; None: nobody listens."""
        with self._lock:
            early, self._early = self._early or [], None
            self._listener = listener
        if listener:
            for entry in early:
                listener(entry)

    def close(self) -> None:
        """Stop writing."""
        if self._stream:
            self._stream.close()
            self._stream = None
