"""Commands of the group `run`."""

from __future__ import annotations

import argparse
import datetime as dt

from rich.console import Console

from ops import collect, metrics, report
from ops.cluster import Cluster
from ops.commands import Group, add_prometheus
from ops.runs import compare_command, list_command, logs_command, show_command, wait_command
from ops.runs.scope import named_run


def add(commands: Group) -> None:
    list_command.add(commands)
    show_command.add(commands)
    logs_command.add(commands)
    wait_command.add(commands)
    compare_command.add(commands)
    why = commands.add(
        "why",
        _why,
        "explain why a run waits, fails or is slow",
        [
            "run why hello                  # the newest run of this name",
            "run why hello-v2-a1b2 --json",
        ],
    )
    show_command.add_run(why)
    why.add_argument("--json", action="store_true", help="print one JSON object")
    add_prometheus(why)


def _why(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    run = named_run(args, cluster)
    prometheus = metrics.connect(args.prometheus, cluster)
    taken = collect.take_snapshot(cluster, run, dt.datetime.now(dt.UTC), prometheus)
    if args.json:
        print(report.to_json(taken))
    else:
        report.print_report(taken, console)
    return 0
