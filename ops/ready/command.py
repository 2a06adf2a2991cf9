"""Options and execution of `trainyard stack ready`."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console

from ops import metrics
from ops.cluster import Cluster, ClusterError
from ops.collect import JOBS
from ops.commands import Group, add_prometheus, add_timeout
from ops.lease import Lease, NotHeldError
from ops.ready import production, queueing, result_store, stack_facts
from ops.ready.context import Session
from ops.ready.jobs import Jobs, leftover_jobs
from ops.ready.outcome import StageResult
from ops.ready.polling import Poller, sleep
from ops.ready.production.prometheus_inventory import read_inventory
from ops.ready.production.snapshot import take_snapshot
from ops.ready.report import Progress, Report
from ops.ready.stages import STAGES, run_stages

TIMEOUT_S: Final = 900.0
"""Default time limit per Job in seconds: it may wait for a new node and an image pull."""

STALE_S: Final = 20.0
"""Seconds without a renewal after which another readiness check counts as dead."""


def add(commands: Group) -> None:
    parser = commands.add(
        "ready",
        run,
        "check the stack in stages, from capacity to production",
        [
            "stack ready                      # run all stages",
            "stack ready --look --json        # start nothing: last results",
            "stack ready --until collective   # check capacity, GPUs and collectives",
        ],
    )
    add_timeout(parser, TIMEOUT_S, "time limit of each Job")
    add_prometheus(parser)
    parser.add_argument(
        "--until",
        choices=[stage.name for stage in STAGES],
        default=STAGES[-1].name,
        metavar="STAGE",
        help=f"last stage to run: {', '.join(stage.name for stage in STAGES)}",
    )
    parser.add_argument(
        "--pool",
        action="append",
        default=[],
        metavar="POOL",
        help="check only this pool, and let Jobs scale it up; repeatable",
    )
    parser.add_argument("--look", action="store_true", help="read only: start no Jobs")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object; progress goes to stderr"
    )


def run(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    """Run the stages, then the production checks. Return 0 if nothing failed, else 1."""
    stack = stack_facts.read(cluster)
    team = stack.team(args.team) if args.team else None
    pools = stack.select_pools(tuple(args.pool))
    known = result_store.read(cluster)
    shown = Console(stderr=True) if args.json else console
    with shown.status(f"reading {stack.cluster}") as status:
        progress = Progress(shown, status)
        progress.show_stack(stack)
        with _session_jobs(args, cluster, progress) as jobs:
            session = Session(
                cluster=cluster,
                stack=stack,
                jobs=jobs,
                pools=pools,
                allow_scale_up=bool(args.pool),
                team=team,
            )
            stages: list[StageResult] = []
            try:
                for found in run_stages(session, progress, until=args.until, start=not args.look):
                    stages.append(found)
            finally:
                # Stages can take hours: store results even if the session is interrupted.
                known = result_store.merge(
                    known, stages, _now(), stack.subjects | {queueing.SUBJECT}
                )
                if stages and not args.look:
                    result_store.write(cluster, known)
        now = _now()
        progress.show_progress(production.TITLE)
        prometheus = read_inventory(metrics.connect(args.prometheus, cluster))
        teams = (team,) if team else stack.teams
        stages.append(
            production.evaluate(take_snapshot(cluster, stack, teams, known, prometheus, now))
        )
        progress.print_rest(stages)
    report = Report(stack=stack, at=now, stages=stages)
    if args.json:
        print(report.as_json())
    return 0 if report.sound else 1


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@contextlib.contextmanager
def _session_jobs(args: argparse.Namespace, cluster: Cluster, progress: Progress) -> Iterator[Jobs]:
    """Hold the lease and yield the session's Jobs; delete them at exit, also after an exception.

    With --look no Job is started, so no lease is required.
    """
    session = secrets.token_hex(3)
    holder = f"process {os.getpid()} on {socket.gethostname()}, session {session}"
    lease = make_lease(cluster, holder)

    def pause() -> None:
        sleep()
        if not args.look:
            renew(lease)

    poller = Poller(limit_s=args.timeout, pause=pause)
    jobs = Jobs(cluster, session, poller, progress.show_progress)
    with contextlib.ExitStack() as ending:
        if not args.look:
            acquire(lease, Poller(limit_s=2 * STALE_S), progress.show_progress)
            ending.callback(lease.release)
            ending.callback(jobs.clear)
            for old in leftover_jobs(cluster):
                progress.show_progress(f"deleting {old.reference}, left by an earlier session")
                cluster.delete(JOBS, old.name, old.namespace)
        yield jobs


def make_lease(cluster: Cluster, holder: str, clock: Callable[[], float] = time.monotonic) -> Lease:
    """Return the Lease that allows one readiness check at a time."""
    return Lease(cluster, stack_facts.NAMESPACE, "ready", holder, clock, gone_s=STALE_S)


def acquire(lease: Lease, poller: Poller, show: Callable[[str], None]) -> None:
    """Acquire the lease, also of a dead holder. Raises ClusterError while another one is alive."""
    first = ""

    def acquired() -> bool | None:
        nonlocal first
        try:
            lease.renew()
        except NotHeldError as error:
            if first and lease.other != first:
                raise ClusterError(
                    f"{error}: another readiness check is running; retry when it finishes"
                ) from None
            first = lease.other
            show(f"{error}; waiting {STALE_S:g} s to see whether it is still running")
            return None
        return True

    if not poller.wait_for(acquired):
        raise ClusterError("lease/ready: changed by others meanwhile; run the command again")


def renew(lease: Lease) -> None:
    """Renew the lease if it is due. Raises ClusterError if another readiness check took it."""
    try:
        lease.renew()
    except NotHeldError as error:
        raise ClusterError(f"{error}: it took over; retry when it finishes") from None
