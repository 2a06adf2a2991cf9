"""torch's profiler for some steps of a run, asked for by a file in the run's folder.

    echo 5 > RUN_DIR/profile

Rank 0 looks for the file once a second, at the end of a step, and removes it as it begins. The trace of the next
steps and a table of what took most time go to `profiles/` in the run's folder. Nothing here stops a program.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from trainyard.contract import PROFILE_FILE, PROFILES_DIR

_POLL_S: Final = 1.0
"""Limits requests to the shared file system."""
_DEFAULT_STEPS: Final = 5
_MOST_STEPS: Final = 100
"""A trace has about a megabyte per step and thousand kernels, and is kept in memory until its end."""
_ROWS: Final = 40
"""Of the table."""


class StepProfiler:
    def __init__(self, folder: Path) -> None:
        """`folder`: of the run."""
        self._request, self._results = folder / PROFILE_FILE, folder / PROFILES_DIR
        self._polled = float("-inf")
        self._profile: Any = None
        self._first = self._until = 0
        self._export: threading.Thread | None = None

    def step_done(self, step: int) -> None:
        """Begin or end a profile if it is time. `step`: optimizer steps completed."""
        if self._profile is None:
            now = time.monotonic()
            if now - self._polled >= _POLL_S:
                self._polled = now
                self._attempt(lambda: self._begin(step))
        elif step >= self._until:
            self._attempt(lambda: self._end(step))

    def wait(self) -> None:
        """Wait until the last trace is written, before a process ends without its threads."""
        if self._export:
            self._export.join()

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # the profiler's, or the file system's: training goes on
            self._profile = None
            _say(f"{type(error).__name__}: {' '.join(str(error).split())}; nothing is profiled")

    def _begin(self, step: int) -> None:
        try:
            text = self._request.read_text(encoding="utf-8").strip()
            self._request.unlink()  # of several groups one is first
        except FileNotFoundError:
            return
        steps = int(text) if text.isdecimal() else 0 if text else _DEFAULT_STEPS
        if not 1 <= steps <= _MOST_STEPS:
            _say(
                f"{self._request}: {text[:20]!r} is not a number of steps; must be 1 to {_MOST_STEPS}, or empty "
                f"for {_DEFAULT_STEPS}; write it again"
            )
            return
        torch = sys.modules.get("torch")
        if torch is None:
            _say("this program does not use torch; nothing is profiled")
            return
        profiler: Any = importlib.import_module("torch.profiler")
        kinds = [profiler.ProfilerActivity.CPU]
        kinds += [profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        profile = profiler.profile(activities=kinds)
        profile.start()
        self._profile, self._first, self._until = profile, step + 1, step + steps

    def _end(self, step: int) -> None:
        profile, self._profile = self._profile, None
        profile.stop()
        # In a thread: to write it takes seconds, in which other ranks would wait.
        self._export = threading.Thread(
            target=lambda: self._attempt(lambda: self._write(profile, self._first, step)),
            name="profile",
        )
        self._export.start()

    def _write(self, profile: Any, first: int, last: int) -> None:
        self._results.mkdir(exist_ok=True)
        trace = self._results / f"step-{first:08d}.json.gz"
        unfinished = trace.with_name(f".{os.getpid()}-{trace.name}")
        profile.export_chrome_trace(str(unfinished))
        unfinished.replace(trace)
        averages = profile.key_averages()
        on_device = any(getattr(one, "self_device_time_total", 0) for one in averages)
        order = "self_device_time_total" if on_device else "self_cpu_time_total"
        table = averages.table(sort_by=order, row_limit=_ROWS)
        trace.with_name(f"step-{first:08d}.txt").write_text(table, encoding="utf-8")
        _say(f"steps {first} to {last}: {trace}")


def _say(text: str) -> None:
    print(f"profile: {text}", file=sys.stderr, flush=True)
