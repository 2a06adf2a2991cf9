"""metrics.jsonl and events.jsonl: what other programs read about a run.

Rank 0 writes both. metrics.jsonl has each completed step exactly once, in order: a resumed run
first drops the steps that it will do again, by writing a new file in place of the old one (so that
a replaced attempt which still writes, writes into the old one). events.jsonl only grows.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any


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
    attempt: int


class MetricsLog:
    """The appended metrics of one attempt; on ranks other than 0 nothing is written."""

    def __init__(self, file: Path, resumed_step: int, *, enabled: bool) -> None:
        """Keep steps 1 .. `resumed_step` of what is there, drop the rest."""
        self._stream: TextIOWrapper | None = None
        if enabled:
            kept = "".join(line + "\n" for line in kept_lines(file, resumed_step))
            fresh = file.with_name(f".{file.name}-{os.getpid()}")
            fresh.write_text(kept, encoding="utf-8")
            fresh.replace(file)
            self._stream = file.open("a", encoding="utf-8")

    def append(self, metrics: StepMetrics) -> None:
        """One line, visible to readers at once; durable with the next `sync`."""
        if self._stream:
            self._stream.write(json.dumps(asdict(metrics)) + "\n")
            self._stream.flush()

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


def kept_lines(file: Path, last_step: int) -> list[str]:
    """The lines of steps 1 .. `last_step`, each once, in order; torn lines are left out."""
    lines: dict[int, str] = {}
    if file.exists():
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            step = _step_of(line)
            if step is not None and 1 <= step <= last_step:
                lines.setdefault(step, line)
    return [lines[step] for step in sorted(lines)]


def _step_of(line: str) -> int | None:
    try:
        values = json.loads(line)
    except ValueError:
        return None
    step = values.get("step") if isinstance(values, dict) else None
    return step if isinstance(step, int) else None


class EventLog:
    """The run's diary; each entry is durable when `write` returns. Threads may share it."""

    def __init__(self, file: Path, attempt: int, *, enabled: bool) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        self._stream = file.open("a", encoding="utf-8") if enabled else None

    def write(self, event: str, step: int, **details: Any) -> None:
        """One entry: its name, the time in Unix seconds, the step, the attempt, then details."""
        if self._stream is None:
            return
        entry = {"event": event, "time": time.time(), "step": step, "attempt": self._attempt}
        with self._lock:
            self._stream.write(json.dumps({**entry, **details}) + "\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Stop writing."""
        if self._stream:
            self._stream.close()
            self._stream = None
