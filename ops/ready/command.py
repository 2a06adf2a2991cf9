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
from ops.checklist.prometheus_inventory import watch
from ops.checklist.snapshot import observe
from ops.cluster import Cluster, ClusterError
from ops.collect import JOBS
from ops.ready import html_report, queueing, result_store, stack_facts
from ops.ready.context import Climb
from ops.ready.jobs import Jobs, leftovers
from ops.ready.lease import STALE_S, Turn
from ops.ready.outcome import Found
from ops.ready.polling import Pace, sleep
from ops.ready.report import Progress, Report, show_end
from ops.ready.stages import RUNGS, climb

TIMEOUT_S: Final = 900.0
"""For one Job: an image may have to be pulled, a node to be made."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this command alone."""
    parser.add_argument(
        "--until",
        choices=[rung.name for rung in RUNGS],
        default=RUNGS[-1].name,
        metavar="RUNG",
        help=f"the last rung to climb: {', '.join(rung.name for rung in RUNGS)}",
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
    parser.add_argument("--html", type=_file, metavar="FILE", help="write one page, too")


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"got {text}; allowed a file in a folder that is there")
    return path


def run(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    """Climb, look, tell. 0: nothing failed, 1: something did."""
    of = stack_facts.read(cluster)
    team = of.team(args.team) if args.team else None
    pools = of.chosen(tuple(args.pool))
    known = result_store.read(cluster)
    shown = Console(stderr=True) if args.json else console
    with shown.status(f"looks at {of.cluster}") as status:
        progress = Progress(shown, status)
        progress.opens(of)
        with _jobs(args, cluster, progress) as jobs:
            on = Climb(
                cluster=cluster,
                stack=of,
                jobs=jobs,
                pools=pools,
                wake=bool(args.pool),
                team=team,
            )
            ladder: list[Found] = []
            try:
                for found in climb(on, progress, until=args.until, start=not args.look):
                    ladder.append(found)
            finally:
                # Hours of a cluster may be behind it: what was found is kept, however the climb ends.
                known = result_store.merged(known, ladder, _now(), of.subjects | {queueing.SUBJECT})
                if ladder and not args.look:
                    result_store.write(cluster, known)
        now = _now()
        progress.say("walks the checklist")
        watched = watch(metrics.of(args.prometheus, cluster))
        rows = checklist(observe(cluster, of, (team,) if team else of.teams, known, watched, now))
    report = Report(stack=of, at=now, ladder=ladder, rows=rows)
    return _tell(report, args, shown)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@contextlib.contextmanager
def _jobs(args: argparse.Namespace, cluster: Cluster, progress: Progress) -> Iterator[Jobs]:
    """The Jobs of this climb, which are gone afterwards, however it ends.

    Nobody else climbs meanwhile. With --look none is started, so anybody may look.
    """
    turn = Turn(cluster, f"process {os.getpid()} on {socket.gethostname()}")

    def rest() -> None:
        sleep()
        turn.keep()

    pace = Pace(limit_s=args.timeout, rest=rest)
    jobs = Jobs(cluster, secrets.token_hex(3), pace, progress.say)
    with contextlib.ExitStack() as ending:
        if not args.look:
            turn.take(Pace(limit_s=STALE_S), progress.say)
            ending.callback(turn.leave)
            ending.callback(jobs.clear)
            for old in leftovers(cluster):
                progress.say(f"deletes {old.reference}, which an earlier climb left")
                cluster.delete(JOBS, old.name, old.namespace)
        yield jobs


def _tell(report: Report, args: argparse.Namespace, console: Console) -> int:
    show_end(report, console)
    if args.json:
        print(report.as_json())
    if args.html:
        try:
            args.html.write_text(html_report.render(report), encoding="utf-8")
        except OSError as error:
            raise ClusterError(f"--html: {args.html}: {error.strerror}") from None
    return 0 if report.sound else 1
