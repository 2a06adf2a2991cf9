"""Watch a run until it ends: a live view on a terminal, else one line per change."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sandbox.node.api import ApiUnavailable
from sandbox.runs import Run, RunReader, RunStatus

POLL_S = 1.0
PLAIN_EVERY_S = 10.0
"""Without a terminal: at most one line of training progress per this many seconds."""
LOST_AFTER_S = 120.0
"""How long the API server may be unavailable before watching fails."""

Condition = Callable[[RunStatus], bool]


def is_over(status: RunStatus) -> bool:
    """Whether the run is over."""
    return bool(status.outcome)


def watch_run(
    reader: RunReader, run: Run, console: Console, until: Condition = is_over
) -> RunStatus:
    """Show the run until `until` holds or the run ends; return that status.

    Raises:
        RunNotFoundError: the run was deleted.
        ApiUnavailable: the API server was unavailable for `LOST_AFTER_S`.
    """
    status = _snapshot(reader, run)
    if not console.is_terminal:
        return _watch_plain(reader, run, console, until, status)
    with Live(render(status), console=console, refresh_per_second=4) as live:
        while not (until(status) or is_over(status)):
            time.sleep(POLL_S)
            status = _snapshot(reader, run)
            live.update(render(status))
    return status


def render(status: RunStatus) -> RenderableType:
    """Return the live view of one status."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    grid.add_row("run", status.run.run_id)
    grid.add_row("state", state_line(status))
    grid.add_row("pods", _pods(status) or "none yet")
    grid.add_row("training", training_line(status) or "not started")
    total = status.progress.total_steps
    bar = ProgressBar(total=total or 1, completed=status.progress.step, width=60)
    return Group(grid, bar if total else Text(""))


def state_line(status: RunStatus) -> str:
    """Return queue, admission and restarts in one line."""
    if status.outcome:
        text = status.outcome.lower()
        return f"{text}: {status.message}" if status.outcome == "Failed" else text
    if status.admitted_after_s is None:
        why = f", evicted: {', '.join(status.evictions)}" if status.evictions else ""
        return f"queued in {status.queue or 'its queue'}{why}"
    parts = [f"admitted to {', '.join(status.flavors)} after {status.admitted_after_s:.0f} s"]
    if status.run.groups:
        parts.append(f"{status.ready}/{status.run.groups} groups")
    if status.evictions:
        parts.append(f"requeued: {', '.join(status.evictions)}")
    if status.restarts:
        parts.append(f"restart {status.restarts}")
    return "; ".join(parts)


def training_line(status: RunStatus) -> str:
    """Return step, loss, throughput and time left in one line; empty before the first step."""
    progress = status.progress
    if not progress.metrics:
        return ""
    total = progress.total_steps
    parts = [
        f"step {progress.step} / {total}" if total else f"step {progress.step}",
        f"loss {progress.metrics[-1]['loss']:.3f}",
    ]
    if speed := progress.tokens_per_second:
        parts.append(f"{speed:,.0f} tokens/s")
    left = progress.seconds_left
    if left is not None and not status.outcome:
        parts.append(f"{_clock(left)} left")
    return ", ".join(parts)


def _clock(seconds: float) -> str:
    """Return `12:05` (minutes and seconds), or `20 days` for two days or more: a run without an end."""
    days = seconds / 86400
    return f"{days:,.0f} days" if days >= 2 else f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


def _watch_plain(
    reader: RunReader, run: Run, console: Console, until: Condition, status: RunStatus
) -> RunStatus:
    reported, reported_step, last = "", 0, 0.0
    while True:
        line = f"{state_line(status)}; pods: {_pods(status) or 'none yet'}"
        if line != reported:
            console.print(f"{run.run_id}: {line}", highlight=False)
            reported = line
        due = time.monotonic() - last >= PLAIN_EVERY_S or until(status)
        if due and status.progress.step != reported_step:
            console.print(f"{run.run_id}: {training_line(status)}", highlight=False)
            reported_step, last = status.progress.step, time.monotonic()
        if until(status) or is_over(status):
            return status
        time.sleep(POLL_S)
        status = _snapshot(reader, run)


def _snapshot(reader: RunReader, run: Run) -> RunStatus:
    """Take a status; retry while the API server is unavailable, up to `LOST_AFTER_S`."""
    deadline = time.monotonic() + LOST_AFTER_S
    while True:
        try:
            return reader.snapshot(run)
        except ApiUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def _pods(status: RunStatus) -> str:
    return ", ".join(f"{count} {phase}" for phase, count in sorted(status.pods.items()))
