"""Metrics of a program: metrics.jsonl and Prometheus, in the formats of the built-in trainer."""

from __future__ import annotations

import functools
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, SupportsFloat, SupportsInt

from trainyard import checkpoints, contract, session
from trainyard.profiling import StepProfiler
from trainyard.prometheus import RunCollector, start_server
from trainyard.run_info import run
from trainyard.run_logs import EventLog, MetricsLog, StepMetrics, Totals
from trainyard.watchdog import watchdog

_REQUIRED: Final = ("step", "loss")
_WHOLE: Final = ("step", "tokens", "samples")
"""Arguments of `log` that are counts."""
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
) -> None:
    """Report an optimizer step, or the steps since the last report.

    `step`: optimizer steps completed; `loss`: mean per token in nats; `tokens`, `samples`: used since
    the last report, over all ranks (0: not known); `mfu`: 0 to 1; `loader_time_s`: seconds that steps
    waited for data. Values may be tensors or NumPy numbers. One that is not a number is left out, with a
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
    reporter = _reporter(run.run_dir, at)
    if reporter is None:
        return
    try:
        reporter.log(
            at,
            value,
            _number("tokens", tokens) or 0,
            _number("samples", samples) or 0,
            _number("lr", lr),
            _number("grad_norm", grad_norm),
            _number("mfu", mfu),
            _number("loader_time_s", loader_time_s) or 0.0,
        )
    except OSError as error:
        reporter.give_up(error)


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


class _Reporter:
    """Rank 0's metrics of this attempt."""

    def __init__(self, folder: Path, step: int) -> None:
        current = session.current()
        self._attempt = current.fence.attempt
        log = MetricsLog(folder / contract.METRICS_FILE, step - 1, enabled=True)
        session.metrics.append(log)
        self._log: MetricsLog | None = log
        self._totals = Totals()
        self._step, self._moment = step - 1, time.monotonic()
        self._close = _serve(folder, self._totals, current)
        self._profiler = StepProfiler(folder)

    def log(
        self,
        step: int,
        loss: float,
        tokens: int,
        samples: int,
        lr: float | None,
        grad_norm: float | None,
        mfu: float | None,
        loader_time_s: float,
    ) -> None:
        """Append one line. Raises OSError."""
        if self._log is None:
            return
        now = time.monotonic()
        stall, checkpoints.stalls[:] = sum(checkpoints.stalls), []
        seconds = max(1e-9, now - self._moment - stall)
        metrics = StepMetrics(
            step=step,
            loss=loss,
            tokens=tokens,
            lr=lr,
            step_time_s=seconds,
            loader_time_s=loader_time_s,
            attempt=self._attempt,
            time=time.time(),
            tokens_per_s=tokens / seconds if tokens else None,
            samples_per_s=samples / seconds if samples else None,
            mfu=mfu,
            grad_norm=grad_norm,
            collective_time_s=0.0,
            checkpoint_stall_s=stall,
        )
        self._log.append(metrics)
        self._totals.add(metrics, samples, steps=max(1, step - self._step))
        self._step, self._moment = step, now
        self._profiler.step_done(step)

    def give_up(self, error: OSError) -> None:
        """Stop reporting after a failure."""
        self._log = None
        print(f"metrics are no longer written: {error}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Make all lines durable and stop serving."""
        if self._log is not None:
            self._log.close()
        if self._close is not None:
            self._close()


@functools.cache
def _open(folder: Path) -> list[_Reporter]:
    """Return a list that has the reporter, once there is one: a failure is not tried again."""
    return []


def _reporter(folder: Path, step: int) -> _Reporter | None:
    known = _open(folder)
    if not known:
        try:
            known.append(_Reporter(folder, step))
        except OSError as error:
            print(f"metrics are not written: {error}", file=sys.stderr, flush=True)
            return None
    return known[0]


def close() -> None:
    """Close what `log` has opened."""
    if run.run_dir is not None:
        for reporter in _open(run.run_dir):
            reporter.close()


def _serve(folder: Path, totals: Totals, current: session.Session) -> Callable[[], None] | None:
    """Serve Prometheus metrics on the platform's port; None without one."""
    port = os.environ.get(contract.METRICS_PORT_ENV)
    if not port:
        return None
    collector = RunCollector(
        totals,
        {"run_id": run.run_id, "team": run.team},
        folder=folder,
        attempt=current.fence.attempt,
        steps=None,
        record=run.record(),
    )
    return serve(collector, current.events, int(port))


def serve(
    collector: RunCollector, events: EventLog, port: int, address: str | None = None
) -> Callable[[], None] | None:
    """Serve a run's Prometheus metrics until the returned function is called; None if they cannot be, with a line.

    `address`: to listen on; None: the pod's.
    """
    try:
        address = address or os.environ.get(contract.METRICS_ADDRESS_ENV)
        address = address or socket.gethostbyname(socket.gethostname())
        stop = start_server(collector, address, port)
    except OSError as error:
        place, why = f"{address or 'port'}:{port}", error.strerror or error
        print(f"cannot serve Prometheus metrics at {place}: {why}", file=sys.stderr, flush=True)
        return None
    events.listen(collector.observe)
    watchdog.on_culprit(collector.add_culprit)
    return stop
