"""`trainyard run wait`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console

from infra.domain import naming
from ops import collect, objects
from ops.cluster import Cluster, ClusterError
from ops.collect import JOBS
from ops.commands import Group, printer
from ops.logs import Line
from ops.objects import Json
from ops.runs import exits, following, progress, states
from ops.runs.columns import progress_text
from ops.runs.gangs import groups_text
from ops.runs.listing import RunSummary, summary_of
from ops.runs.log_reader import LogReader, pod_of_rank
from ops.runs.progress import NO_PROGRESS
from ops.runs.scope import named_run
from ops.runs.show_command import add_run
from ops.snapshot import Snapshot, format_duration
from ops.watched import Watched

PROGRESS_EVERY_S: Final = 10.0
"""At most one line of progress in so many seconds."""
_TAIL: Final = 200

Print = Callable[[str], None]


def add(commands: Group) -> None:
    command = commands.add(
        "wait",
        run,
        "follow a run until it ends; exit with its exit code",
        ["run wait hello                   # then $? is the exit code of its program"],
    )
    add_run(command)


def run(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    """Follow a run. Return its exit code; 1 if it was deleted, 75 if it was stopped."""
    now = follow(cluster, named_run(args, cluster), printer(console))
    return exit_code(cluster, now)


def follow(
    cluster: Cluster,
    found: Json,
    show: Print,
    until: Callable[[], bool] = lambda: False,
    poll_s: float = following.POLL_S,
) -> Snapshot:
    """Show changes of a run until it has ended or `until` holds; return it as it is then."""
    watched = Watched(cluster)
    shown, told_at, at = "", 0.0, NO_PROGRESS
    reader: LogReader | None = None
    lines: list[Line] = []
    while True:
        enough = until()
        now = following.read_again(lambda: collect.read_run(watched, found), show)
        if (chosen := _reader(cluster, now, reader)) is not reader:
            reader, lines = chosen, []
        lines = [*lines, *_new_lines(reader, show)][-_TAIL:]
        newer = progress.newer(progress.from_log(lines), at)
        one = summary_of(now, newer)
        line = describe(one)
        moved = newer.step != at.step and time.monotonic() - told_at >= PROGRESS_EVERY_S
        if line != shown or moved or ((one.over or enough) and newer != at):
            show(f"{one.run_id}: {line}{_step_text(one)}")
            shown, told_at = line, time.monotonic()
            at = newer
        if one.over:
            # What a watch keeps of its pods may be older than the end of the run.
            return following.read_again(lambda: collect.read_run(cluster, found), show)
        if enough:
            return now
        time.sleep(poll_s)


def describe(one: RunSummary) -> str:
    """Return state, attempt and pods in one line, without what changes with each step."""
    parts = [one.state]
    if one.groups and not one.over:
        parts.append(groups_text(one.groups, one.groups_total))
    elif one.state == states.STARTING:
        parts.append(f"{one.ready} of {one.nodes} pods ready")
    if one.pools and not one.over:
        parts.append(f"on {', '.join(one.pools)}")
    if one.attempt > 1 and not one.groups:
        parts.append(f"attempt {one.attempt}")
    if one.message and (one.over or one.state == states.QUEUED):
        parts.append(one.message)
    return ", ".join(parts)


def _step_text(one: RunSummary) -> str:
    if one.progress.step is None:
        return ""
    loss = f", loss {one.progress.loss:.3f}" if one.progress.loss is not None else ""
    left = None if one.over else one.progress.seconds_left
    rest = f", about {format_duration(left)} left" if left is not None else ""
    return f"; step {progress_text(one)}{loss}{rest}"


def _reader(cluster: Cluster, now: Snapshot, reader: LogReader | None) -> LogReader | None:
    pod = pod_of_rank(now, 0)
    if pod is None or (reader is not None and reader.pod == objects.name(pod)):
        return reader
    if objects.status(pod).get("phase") == "Pending":
        return reader
    return LogReader.of(cluster, pod, _TAIL)


def _new_lines(reader: LogReader | None, show: Print) -> Sequence[Line]:
    """Return the newest lines of rank 0's log; none of a log that cannot be read."""
    if reader is None:
        return []
    try:
        found = following.read_again(reader.read, show)
    except ClusterError:
        return []
    return found or []


def exit_code(cluster: Cluster, now: Snapshot) -> int:
    """Return the exit code of a run that has ended, by its pods, its Jobs and its own condition."""
    namespace = str(objects.meta(now.run)["namespace"])
    with contextlib.suppress(ClusterError):
        now = dataclasses.replace(
            now, jobs=cluster.items(JOBS, namespace, f"{naming.RUN_ID}={now.run_id}")
        )
    return exits.exit_code(now)
