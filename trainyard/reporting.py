"""Metrics of a program: metrics.jsonl and Prometheus."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, SupportsFloat, SupportsInt

from trainyard import checkpoints, contract, session
from trainyard.profiling import StepProfiler
from trainyard.prometheus import RunCollector, start_server
from trainyard.run_info import run
from trainyard.run_logs import MetricsLog, StepMetrics, Totals
from trainyard.watchdog import watchdog

_REQUIRED: Final = ("step", "loss")
_WHOLE: Final = ("step", "tokens", "samples")
"""Arguments of `log` that are counts."""
_KEPT: Final = 4096
"""Lines in memory: more steps than are taken while a long file is opened."""
_refused: set[str] = set()
"""Arguments of `log` for which a line was printed that they are not numbers."""


def log(
    *,
    step: SupportsInt,
    loss: SupportsFloat,
    tokens: SupportsInt = 0,
    samples: SupportsInt = 0,
    lr: SupportsFloat | None = None,
    grad_norm: SupportsFloat | None = None,
    mfu: SupportsFloat | None = None,
    loader_time_s: SupportsFloat = 0.0,
    collective_time_s: SupportsFloat = 0.0,
    step_time_s: SupportsFloat | None = None,
) -> None:
    """Report an optimizer step, or the steps since the last report.

    `step`: optimizer steps completed; `loss`: mean per token in nats; `tokens`, `samples`: used since
    the last report, over all ranks (0: not known); `mfu`: 0 to 1; `loader_time_s`, `collective_time_s`: seconds
    that steps waited for data and for other ranks; `step_time_s`: by default the time since the last report
    without saves. Values may be tensors or NumPy numbers. One that is not a number is left out, with a
    line; without `step` and `loss` nothing is reported. Rank 0 reports; on other ranks, and outside a run,
    nothing happens. A failure is printed once and never stops the program.
    """
    at = _number("step", step)
    watchdog.describe(number=at)
    if run.rank != 0 or run.run_dir is None:
        return
    value = _number("loss", loss)
    if at is None or value is None:
        return
    reporter.log(
        at,
        value,
        _number("tokens", tokens) or 0,
        _number("samples", samples) or 0,
        step_time_s=_number("step_time_s", step_time_s),
        lr=_number("lr", lr),
        grad_norm=_number("grad_norm", grad_norm),
        mfu=_number("mfu", mfu),
        loader_time_s=_number("loader_time_s", loader_time_s) or 0.0,
        collective_time_s=_number("collective_time_s", collective_time_s) or 0.0,
    )


def _number(name: str, value: Any) -> Any:
    """Return an argument of `log` as a Python number; None, after one line in all, if it is not one."""
    if value is None and name not in _REQUIRED:
        return None
    try:
        if hasattr(value, "full_tensor"):  # a DTensor: to add up its parts is a call of all ranks
            if not all(placement.is_replicate() for placement in value.placements):
                raise TypeError("full_tensor() must be called on all ranks")
            value = value.to_local()
        scalar = value.item() if hasattr(value, "item") else value
        return int(scalar) if name in _WHOLE else float(scalar)
    except Exception as error:  # whatever the type raises: training goes on
        if name not in _refused:
            _refused.add(name)
            what = "the step is not reported" if name in _REQUIRED else "it is left out"
            why = " ".join(str(error).split())
            print(
                f"trainyard.log: {name}: {type(value).__name__} is not one number ({why}); "
                f"pass a number or a tensor of one element; {what}",
                file=sys.stderr,
                flush=True,
            )
        return None


class Reporter:
    """Rank 0's metrics: the last lines in memory, and all of them in the run's folder while this process reports.

    In a run with groups another one may report, and be lost before it has written the newest lines.
    """

    def __init__(self) -> None:
        self.dropped: list[dict[str, Any]] = []
        """Cost of the steps that the run takes again; see MetricsLog."""
        self.missing = 0
        """Steps before the first of this attempt that have no line."""
        self.waits = False
        """Whether `log` only keeps lines until `take_over` is called."""
        self._lines: deque[StepMetrics] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        self._reports = self._failed = False
        self._opened = threading.Event()
        """Set once the file is open, or cannot be opened."""
        self._file: MetricsLog | None = None
        self._close: Callable[[], None] | None = None
        self._profiler: StepProfiler | None = None
        self._totals = Totals()
        self._attempt = self._step = 0
        self._moment = time.monotonic()

    def take_over(self) -> None:
        """Have this process report, as of this attempt; `open` follows."""
        self._attempt = session.current().fence.attempt
        self._totals = Totals()  # counters are of an attempt
        self._reports, self._failed = True, False
        self._opened.clear()
        session.metrics[:] = [self]

    def open(self, step: int, *, steps: int | None = None, groups: int = 0) -> None:
        """Write the lines after this step, and those before it that the file lacks; serve them. In any thread.

        `steps`: of the whole run, if known; `groups`: that it may have. Raises OSError.
        """
        assert run.run_dir is not None
        try:
            self._open_file(run.run_dir, step)
        finally:
            self._opened.set()
        self._profiler = StepProfiler(run.run_dir)
        self._close = _serve(run.run_dir, self._totals, steps, groups)

    def _open_file(self, folder: Path, step: int) -> None:
        file = MetricsLog(folder / contract.METRICS_FILE, step, enabled=True)
        with self._lock:
            for line in self._lines:
                if line.step > step:
                    file.append(line)
                elif line.step > step - file.missing:
                    file.append(replace(line, attempt=self._attempt))
                    file.missing -= 1
            self._file, self.dropped, self.missing = file, file.dropped, file.missing

    def log(
        self,
        step: int,
        loss: float,
        tokens: int,
        samples: int,
        *,
        step_time_s: float | None,
        **others: Any,
    ) -> None:
        """Keep a line, and write it if this process reports; `others` are fields of StepMetrics."""
        now = time.monotonic()
        stall, checkpoints.stalls[:] = sum(checkpoints.stalls), []
        seconds = step_time_s or max(1e-9, now - self._moment - stall)
        steps, self._step, self._moment = max(1, step - self._step), step, now
        try:
            if not self._reports and not self.waits:
                steps = 1
                self.take_over()
                self.open(step - 1)
        except OSError as error:
            self._fail(error)
        line = StepMetrics(
            step=step,
            loss=loss,
            tokens=tokens,
            step_time_s=seconds,
            attempt=self._attempt,
            time=time.time(),
            tokens_per_s=tokens / seconds if tokens else None,
            samples_per_s=samples / seconds if samples else None,
            checkpoint_stall_s=stall,
            **others,
        )
        with self._lock:
            self._lines.append(line)
            try:
                if self._file:
                    self._file.append(line)
            except OSError as error:
                self._fail(error)
        self._totals.add(line, samples, steps=steps)
        if self._profiler:
            self._profiler.step_done(step)

    def _fail(self, error: OSError) -> None:
        """Write no more lines before the next checkpoint, for which `sync` tries it again."""
        self._file = None
        if not self._failed:
            print(f"metrics are not written: {error}", file=sys.stderr, flush=True)
        self._failed = True

    def sync(self) -> None:
        """Make the lines durable: called before each checkpoint, whose steps are then recorded. Raises OSError."""
        self._opened.wait()
        if self._file is None and run.run_dir is not None:
            self._open_file(run.run_dir, self._lines[0].step - 1 if self._lines else self._step)
        if self._file:
            self._file.sync()

    def wait(self) -> None:
        """Wait until a trace of profiled steps is written."""
        if self._profiler:
            self._profiler.wait()

    def close(self) -> None:
        with self._lock:
            file, self._file, self._reports = self._file, None, False
            self._lines.clear()
        if file:
            file.close()
        if self._close:
            self._close()
        self._profiler = self._close = None


reporter: Final = Reporter()
"""Of this process."""


def close() -> None:
    """Close what `log` has opened."""
    reporter.close()


def _serve(
    folder: Path, totals: Totals, steps: int | None, groups: int
) -> Callable[[], None] | None:
    """Serve Prometheus metrics on the platform's port; None without one, or if it cannot be used, with a line."""
    port, current = os.environ.get(contract.METRICS_PORT_ENV), session.current()
    if not port:
        current.events.listen(None)
        return None
    collector = RunCollector(
        totals,
        {"run_id": run.run_id or folder.resolve().name, "team": run.team},
        folder=folder,
        attempt=current.fence.attempt,
        steps=steps,
        groups=groups,
        record=run.record(),
    )
    address = os.environ.get(contract.METRICS_ADDRESS_ENV)
    try:
        address = address or socket.gethostbyname(socket.gethostname())
        stop = start_server(collector, address, int(port))
    except OSError as error:
        place, why = f"{address or 'port'}:{port}", error.strerror or error
        print(f"cannot serve Prometheus metrics at {place}: {why}", file=sys.stderr, flush=True)
        current.events.listen(None)
        return None
    current.events.listen(collector.observe)
    watchdog.on_culprit(collector.add_culprit)
    return stop
