"""`trainyard stack release`."""

from __future__ import annotations

import argparse
from typing import Final

from rich.console import Console

from ops import controller
from ops.cluster import Cluster
from ops.commands import Group, printer
from ops.release import Releaser

EVERY_S: Final = 30.0


def add(commands: Group) -> None:
    release = commands.add(
        "release",
        _release,
        "let groups of ended runs go that still wait for nodes",
        ["stack release --once --dry-run", "stack release --once"],
    )
    controller.add_options(release, EVERY_S, "look once and end")


def _release(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    show = printer(console)
    lease = controller.lease_of(args, cluster)
    releaser = Releaser(cluster, show, dry_run=args.dry_run, lease=lease)
    return controller.repeat(args, releaser.step, lease, show)
