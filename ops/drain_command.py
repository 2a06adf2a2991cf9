"""`trainyard stack drain|resume`."""

from __future__ import annotations

import argparse
from typing import Final

from rich.console import Console

from ops import drain
from ops.cluster import Cluster
from ops.commands import Group, add_timeout, printer

DRAIN_TIMEOUT_S: Final = 600.0


def add(commands: Group) -> None:
    stop = commands.add(
        "drain",
        _drain,
        "stop the queues: running runs save, exit and requeue",
        ["stack drain --team research", "stack drain --timeout 1800"],
    )
    add_timeout(stop, DRAIN_TIMEOUT_S, "time limit until nothing runs")
    commands.add("resume", _resume, "reopen the queues", ["stack resume --team research"])


def _drain(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    show = printer(console)
    left = drain.drain(cluster, args.team, args.timeout, show)
    team = f" --team {args.team}" if args.team else ""
    if not left.empty:
        for pod in left.pods:
            show(f"  still running: {pod}")
        show(
            f"Not drained after {args.timeout:g} s; run trainyard stack drain{team} to continue waiting."
        )
        return 1
    show("Drained: nothing runs, queued runs wait.")
    for job in drain.manual_drill_jobs(cluster, args.team):
        show(f"Before pulumi destroy: kubectl delete {job} (its pod holds the team's volume).")
    show(
        f"Next: trainyard stack resume{team} reopens the queues; pulumi destroy deletes the stack."
    )
    return 0


def _resume(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    opened = drain.resume(cluster, args.team)
    printer(console)(f"Open: {', '.join(opened) if opened else 'no queue was stopped'}")
    return 0
