"""`trainyard spot steer`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Final

from rich.console import Console

from ops import controller, metrics
from ops.cluster import Cluster
from ops.commands import Group, add_prometheus, printer
from ops.exposition import Page, add_metrics, serving
from ops.steer import settings
from ops.steer.control import Controller
from ops.steer.settings import Settings

EVERY_S: Final = 30.0


def add(commands: Group) -> None:
    steer = commands.add(
        "steer",
        _steer,
        "move runs between the pools of their queue, by losses, time-outs, deadlines and prices",
        ["spot steer --stack dev --once --dry-run", "spot steer --stack dev"],
    )
    source = steer.add_mutually_exclusive_group(required=True)
    source.add_argument("--stack", metavar="STACK", help="such as dev")
    source.add_argument(
        "--pools", type=Path, metavar="FILE", help="pools and rules that the stack has written"
    )
    controller.add_options(steer, EVERY_S, "poll once and end")
    add_metrics(steer)
    add_prometheus(steer)


def _steer(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    show = printer(console)
    lease = controller.lease_of(args, cluster)
    page = Page()
    steering = Controller(
        cluster,
        _settings(args),
        show,
        dry_run=args.dry_run,
        lease=lease,
        home=args.lease[0] if args.lease else "",
        page=page,
        every_s=args.every,
    )
    prometheus = metrics.connect(args.prometheus, cluster)
    with serving(args.metrics, page):
        return controller.repeat(args, lambda: steering.step(prometheus, time.time()), lease, show)


def _settings(args: argparse.Namespace) -> Settings:
    if args.pools:
        return controller.read_published("--pools", args.pools, "pools", settings.parse)
    from ops.ledger import stack_file  # Imports the whole configuration, and Pulumi.

    return settings.parse(stack_file.steering(args.stack))
