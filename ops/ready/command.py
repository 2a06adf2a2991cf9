"""Options and execution of `trainyard stack ready`."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import secrets
from collections.abc import Iterator
from typing import Final

from rich.console import Console

from ops import metrics, objects
from ops.cluster import Cluster, ClusterError
from ops.collect import JOBS
from ops.commands import Group, add_prometheus, add_timeout
from ops.ready import production, queueing, report, results, stack_facts
from ops.ready.jobs import (
    SESSION_LABEL,
    Jobs,
    Poller,
    Session,
    terminal_condition,
)
from ops.ready.production.snapshot import read_inventory, take_snapshot
from ops.ready.report import Progress
from ops.ready.results import StageResult
from ops.ready.stages import STAGES, run_stages

TIMEOUT_S: Final = 900.0
"""Default time limit per Job in seconds: it may wait for a new node and an image pull."""


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
    known = results.read(cluster)
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
                for found in run_stages(
                    session,
                    progress.stage_started,
                    progress.found,
                    until=args.until,
                    start=not args.look,
                ):
                    stages.append(found)
            finally:
                # Stages can take hours: store results even if the session is interrupted.
                known = results.merge(known, stages, _now(), stack.subjects | {queueing.SUBJECT})
                if stages and not args.look:
                    results.write(cluster, known)
        now = _now()
        progress.show_progress(production.TITLE)
        prometheus = read_inventory(metrics.connect(args.prometheus, cluster))
        teams = (team,) if team else stack.teams
        stages.append(
            production.evaluate(take_snapshot(cluster, stack, teams, known, prometheus, now))
        )
        progress.print_rest(stages)
    if args.json:
        print(report.as_json(stack, now, stages))
    return 0 if report.is_sound(stages) else 1


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@contextlib.contextmanager
def _session_jobs(args: argparse.Namespace, cluster: Cluster, progress: Progress) -> Iterator[Jobs]:
    """Yield the session's Jobs; delete them at exit, also after an exception.

    Raises ClusterError while Jobs of another check run, which would take its nodes; ended ones are deleted.
    """
    for job in [] if args.look else cluster.items(JOBS, selector=SESSION_LABEL):
        if not terminal_condition(job):
            raise ClusterError(
                f"{objects.reference(job)}: is of another readiness check, which runs or was killed; retry when it"
                f" has ended, or delete what it left: kubectl delete jobs -A -l {SESSION_LABEL}"
            )
        cluster.delete(JOBS, objects.name(job), str(objects.meta(job)["namespace"]))
    poller = Poller(limit_s=args.timeout)
    jobs = Jobs(cluster, secrets.token_hex(3), poller, progress.show_progress)
    try:
        yield jobs
    finally:
        jobs.clear()
