"""`trainyard spot steer`."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import signal
import socket
import time
from pathlib import Path
from typing import Final

from rich.console import Console

from ops import metrics
from ops.budgets.command import address, lease_name
from ops.budgets.exposition import Page, serve
from ops.cluster import Cluster, ClusterError
from ops.commands import Group, add_prometheus, printer
from ops.lease import Lease
from ops.steer import settings
from ops.steer.control import Controller
from ops.steer.settings import Settings

EVERY_S: Final = 30.0


def add(commands: Group) -> None:
    """Add the command to the group `spot`."""
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
    steer.add_argument(
        "--lease",
        type=lease_name,
        metavar="NAMESPACE/NAME",
        help="write only while this process holds the Lease; the others wait",
    )
    steer.add_argument("--once", action="store_true", help="decide once and end")
    steer.add_argument("--dry-run", action="store_true", help="say what would be done")
    steer.add_argument(
        "--every", type=float, default=EVERY_S, metavar="SECONDS", help="default %(default)g"
    )
    steer.add_argument(
        "--metrics",
        type=address,
        metavar="ADDRESS:PORT",
        help="serve metrics to Prometheus there, under /metrics; default: nowhere",
    )
    add_prometheus(steer)


def _steer(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    show = printer(console)
    lease, home = None, ""
    if args.lease:
        home, name = args.lease
        lease = Lease(cluster, home, name, f"{socket.gethostname()}-{secrets.token_hex(4)}")
        # The first process of a container ignores SIGTERM without a handler.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    page = Page()
    controller = Controller(
        cluster,
        _settings(args),
        show,
        dry_run=args.dry_run,
        lease=lease,
        home=home,
        page=page.put,
        every_s=args.every,
    )
    server = None
    if args.metrics:
        host, port = args.metrics
        server = serve(host, port, page)
    prometheus = metrics.connect(args.prometheus, cluster)
    failed = ""
    try:
        while True:
            try:
                controller.step(prometheus, time.time())
                failed = ""
            except ClusterError as error:
                if args.once:
                    raise
                if str(error) != failed:
                    show(f"nothing done: {error}")
                failed = str(error)
            if args.once:
                return 0
            time.sleep(args.every)
    finally:
        if server:
            server.shutdown()
            server.server_close()
        if lease:
            with contextlib.suppress(ClusterError):
                lease.release()


def _settings(args: argparse.Namespace) -> Settings:
    """Return the settings of the file, else of the stack."""
    if args.pools:
        return settings.read(args.pools)
    from ops.ledger import stack_file  # Imports the whole configuration, and Pulumi.

    return settings.parse(stack_file.steering(args.stack))
