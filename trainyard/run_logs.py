"""metrics.jsonl and events.jsonl, written by rank 0.

metrics.jsonl has each completed step exactly once, in order: a resumed run first drops the steps it
will repeat, by replacing the file (a stale attempt that still writes, writes to the old file).
events.jsonl is append-only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Final

Listener = Callable[[dict[str, Any]], None]

Line = tuple[str, dict[str, Any]]
"""A line's text and its parsed values."""
_TAIL_BYTES: Final = 65536
"""Longer than any line."""
_WHOLE_LINE: Final = re.compile(rb'^\{"step": (\d+), .*\}\n', re.MULTILINE)
"""A line of metrics as `append` writes it."""


@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    step: int
    loss: float
    """Mean over the global batch in nats per token; JSON keeps every bit."""
    tokens: int
    """Tokens predicted in this step over all ranks."""
    lr: float | None
    """null if the program does not report it, as other values that can be null."""
    step_time_s: float
    """Duration of the step with waiting for data, without evaluation and saving."""
    loader_time_s: float
    """Part of the step spent waiting for samples."""
    attempt: int
    time: float
    """Unix seconds when the step ended."""
    tokens_per_s: float | None
    samples_per_s: float | None
    mfu: float | None
    """Model FLOPs utilization, 0 to 1 of dense bf16; null if the device's peak is unknown."""
    grad_norm: float | None
    """Global 2-norm of the gradients before clipping."""
    collective_time_s: float
    """Part of the step spent in its final all-reduce, waiting for other ranks. Gradient reduction
    during the backward pass is not included."""
    checkpoint_stall_s: float
    """Time before the step, not in `step_time_s`, that the preceding save stalled training."""


@dataclass(kw_only=True)
class Totals:
    """Totals of this attempt, exported as counters."""

    steps: int = 0
    tokens: int = 0
    samples: int = 0
    step_time_s: float = 0.0
    loader_time_s: float = 0.0
    collective_time_s: float = 0.0
    checkpoint_stall_s: float = 0.0
    last: StepMetrics | None = None

    def add(self, metrics: StepMetrics, samples: int, steps: int = 1) -> None:
        self.steps += steps
        self.tokens += metrics.tokens
        self.samples += samples
        self.step_time_s += metrics.step_time_s
        self.loader_time_s += metrics.loader_time_s
        self.collective_time_s += metrics.collective_time_s
        self.checkpoint_stall_s += metrics.checkpoint_stall_s
        self.last = metrics


class MetricsLog:
    """Appends the metrics of one attempt; writes nothing on ranks other than 0."""

    def __init__(self, file: Path, resumed_step: int, *, enabled: bool) -> None:
        """Keep steps 1 .. `resumed_step` of an existing file and drop the rest."""
        self._stream: FileIO | None = None
        self.dropped: list[dict[str, Any]] = []
        """Cost of the dropped steps, one entry per attempt that made them."""
        self.missing = 0
        """Steps up to the resumed one that have no line."""
        if enabled:
            content = file.read_bytes() if file.exists() else b""
            kept, dropped = _split(content, resumed_step)
            self.dropped = dropped_steps(dropped, resumed_step)
            self.missing = max(0, resumed_step - kept.count(b"\n"))
            fresh = file.with_name(f".{file.name}-{os.getpid()}")
            fresh.write_bytes(kept)
            fresh.replace(file)
            self._stream = file.open("ab", buffering=0)

    def append(self, metrics: StepMetrics) -> None:
        """Append one line, visible immediately and durable after the next `sync`. Raises OSError."""
        if self._stream:
            line = f"{json.dumps(vars(metrics))}\n".encode()
            if self._stream.write(line) != len(line):
                raise OSError(errno.ENOSPC, "a line was cut", self._stream.name)

    def sync(self) -> None:
        """Fsync all lines; called before each checkpoint, so that its steps are recorded."""
        if self._stream:
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        if self._stream:
            self.sync()
            self._stream.close()
            self._stream = None


def kept_lines(lines: Sequence[Line], last_step: int) -> list[str]:
    """Return the lines of steps 1 .. `last_step`, each once, in order."""
    kept: dict[int, str] = {}
    for text, values in lines:
        if 1 <= values["step"] <= last_step:
            kept.setdefault(values["step"], text)
    return [kept[step] for step in sorted(kept)]


def dropped_steps(lines: Sequence[Line], last_step: int) -> list[dict[str, Any]]:
    """Return the cost in seconds of steps after `last_step`, by attempt."""
    found: dict[int, dict[str, Any]] = {}
    for _, values in lines:
        if values["step"] > last_step and "time" in values:
            attempt = int(values["attempt"])
            part = found.setdefault(attempt, {"attempt": attempt, "steps": 0, "seconds": 0.0})
            part["steps"] += 1
            part["seconds"] += values["step_time_s"] + values["checkpoint_stall_s"]
            part["until"] = values["time"]
    return [found[attempt] for attempt in sorted(found)]


def _split(content: bytes, last_step: int) -> tuple[bytes, list[Line]]:
    """Return the lines of steps 1 .. `last_step`, and all others that may have been dropped.

    A long log is parsed only after the last step that is kept, if the lines before it are whole and in order.
    """
    begin, dropped = content.rfind(b"\n") + 1, list[Line]()
    while begin:
        before = content.rfind(b"\n", 0, begin - 1) + 1
        if line := _parse(content[before:begin].decode(errors="replace")):
            if line[1]["step"] <= last_step:
                break
            dropped.append(line)
        begin = before
    kept = content[:begin]
    steps = list(map(int, _WHOLE_LINE.findall(kept)))
    if kept.count(b"\n") == last_step and steps == list(range(1, last_step + 1)):
        return kept, dropped[::-1]
    texts = content.decode(errors="replace").splitlines()
    lines = [line for text in texts if (line := _parse(text))]
    return "".join(f"{text}\n" for text in kept_lines(lines, last_step)).encode(), lines


def _parse(text: str) -> Line | None:
    """Return a line that is a step; None for anything else."""
    try:
        values = json.loads(text)
    except ValueError:
        return None
    if isinstance(values, dict) and isinstance(values.get("step"), int):
        return text.removesuffix("\n"), values
    return None


class EventLog:
    """Appends events; each is durable when `write` returns. Thread-safe."""

    def __init__(self, file: Path, attempt: int, *, enabled: bool) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._early: list[dict[str, Any]] | None = []
        """Entries written before `listen` was called; None afterwards."""
        self._stream = file.open("a", encoding="utf-8") if enabled else None

    def write(self, event: str, step: int, **details: Any) -> None:
        """Append an entry: name, time in Unix seconds, step, attempt, then details."""
        if self._stream is None:
            return
        entry = {"event": event, "time": time.time(), "step": step, "attempt": self._attempt}
        entry.update(details)
        with self._lock:
            begun = time.perf_counter()
            self._stream.write(json.dumps(entry) + "\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
            entry["sync_s"] = time.perf_counter() - begun
            if self._early is not None:
                self._early.append(entry)
        if self._listener:
            self._listener(entry)

    def listen(self, listener: Listener | None) -> None:
        """Pass every entry to `listener`, earlier ones of this attempt first; None for no listener.

        An entry has `sync_s` in addition: seconds that its line took to reach the volume.
        """
        with self._lock:
            early, self._early = self._early or [], None
            self._listener = listener
        if listener:
            for entry in early:
                listener(entry)

    def close(self) -> None:
        if self._stream:
            self._stream.close()
            self._stream = None


def last_line(file: Path) -> dict[str, Any] | None:
    """Return the values of the last complete line; None without one."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = stream.read().split(b"\n")[:-1]
        values = json.loads(lines[-1]) if lines else None
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def entries_from_end(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete entries of a log, the last one first; reads no more of it than is needed."""
    with file.open("rb") as stream:
        end, rest = stream.seek(0, os.SEEK_END), b""
        while end:
            begin = max(0, end - _TAIL_BYTES)
            stream.seek(begin)
            first, *lines = (stream.read(end - begin) + rest).split(b"\n")
            end, rest = begin, first
            for line in reversed([first, *lines] if begin == 0 else lines):
                with contextlib.suppress(ValueError):
                    values = json.loads(line)
                    if isinstance(values, dict):
                        yield values
