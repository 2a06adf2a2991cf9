"""`python -m ops ready`: its options, and one call of it."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console

from ops import metrics
from ops.checklist import checklist
from ops.checklist.prometheus_inventory import read_inventory
from ops.checklist.snapshot import take_snapshot
from ops.cluster import Cluster, ClusterError
from ops.collect import JOBS
from ops.ready import html_report, queueing, result_store, stack_facts
from ops.ready.context import Session
from ops.ready.jobs import Jobs, leftover_jobs
from ops.ready.lease import STALE_S, LeaseLock
from ops.ready.outcome import StageResult
from ops.ready.polling import Poller, sleep
from ops.ready.report import Progress, Report, print_checklist
from ops.ready.stages import STAGES, run_stages

TIMEOUT_S: Final = 900.0
"""For one Job: an image may have to be pulled, a node to be made."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this command alone."""
    parser.add_argument(
        "--until",
        choices=[stage.name for stage in STAGES],
        default=STAGES[-1].name,
        metavar="RUNG",
        help=f"the last rung to climb: {', '.join(stage.name for stage in STAGES)}",
    )
    parser.add_argument(
        "--pool",
        action="append",
        default=[],
        metavar="POOL",
        help="only this pool, which Jobs may make grow; may be given more than once",
    )
    parser.add_argument("--look", action="store_true", help="read only: start nothing")
    parser.add_argument("--json", action="store_true", help="one JSON object; progress on stderr")
    parser.add_argument("--html", type=_output_path, metavar="FILE", help="write one page, too")


def _output_path(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"got {text}; allowed a file in a folder that is there")
    return path


def run(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    """Climb, look, tell. 0: nothing failed, 1: something did."""
    stack = stack_facts.read(cluster)
    team = stack.team(args.team) if args.team else None
    pools = stack.select_pools(tuple(args.pool))
    known = result_store.read(cluster)
    shown = Console(stderr=True) if args.json else console
    with shown.status(f"looks at {stack.cluster}") as status:
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
                # Hours of a cluster may be behind it: what was found is kept, however the climb ends.
                known = result_store.merge(
                    known, stages, _now(), stack.subjects | {queueing.SUBJECT}
                )
                if stages and not args.look:
                    result_store.write(cluster, known)
        now = _now()
        progress.say("walks the checklist")
        prometheus = read_inventory(metrics.connect(args.prometheus, cluster))
        rows = checklist(
            take_snapshot(cluster, stack, (team,) if team else stack.teams, known, prometheus, now)
        )
    report = Report(stack=stack, at=now, stages=stages, rows=rows)
    return _write_report(report, args, shown)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@contextlib.contextmanager
def _session_jobs(args: argparse.Namespace, cluster: Cluster, progress: Progress) -> Iterator[Jobs]:
    """The Jobs of this climb, which are gone afterwards, however it ends.

    Nobody else climbs meanwhile. With --look none is started, so anybody may look.
    """
    lease = LeaseLock(cluster, f"process {os.getpid()} on {socket.gethostname()}")

    def pause() -> None:
        sleep()
        lease.renew_if_due()

    poller = Poller(limit_s=args.timeout, pause=pause)
    jobs = Jobs(cluster, secrets.token_hex(3), poller, progress.say)
    with contextlib.ExitStack() as ending:
        if not args.look:
            lease.acquire(Poller(limit_s=STALE_S), progress.say)
            ending.callback(lease.release)
            ending.callback(jobs.clear)
            for old in leftover_jobs(cluster):
                progress.say(f"deletes {old.reference}, which an earlier climb left")
                cluster.delete(JOBS, old.name, old.namespace)
        yield jobs


def _write_report(report: Report, args: argparse.Namespace, console: Console) -> int:
    print_checklist(report, console)
    if args.json:
        print(report.as_json())
    if args.html:
        try:
            args.html.write_text(html_report.render(report), encoding="utf-8")
        except OSError as error:
            raise ClusterError(f"--html: {args.html}: {error.strerror}") from None
    return 0 if report.sound else 1
