"""`trainyard ui`."""

from __future__ import annotations

import argparse
import secrets
import socket
import webbrowser
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from rich.console import Console

from ops.cluster import Cluster, ClusterError
from ops.commands import Group, add_cluster, add_prometheus, printer
from ops.ledger.command import add_record
from ops.runs.scope import read_in_scope
from ops.snapshot import pluralize
from ops.ui.server import create_app
from ops.ui.source import Source

PORT: Final = 8642
EXAMPLES: Final = (
    "ui                                # print the address of the page; Ctrl-C ends it",
    "ui --team research --open         # runs of one team, in the browser",
)
_STOP_S: Final = 1
"""Seconds that open event streams have at the end."""


def add(commands: Group) -> None:
    """Add the command."""
    command = commands.add_offline(
        "ui", run, "serve a page with runs, queues and nodes on loopback", EXAMPLES
    )
    add_cluster(command)
    command.add_argument(
        "--port",
        type=_port,
        metavar="N",
        help=f"port on 127.0.0.1; 0: any free one; default {PORT}, or any free one if it is taken",
    )
    command.add_argument("--open", action="store_true", help="open the page in the browser")
    add_record(command)
    add_prometheus(command)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"got {text}; expected 0 to 65535")
    return int(text)


def run(args: argparse.Namespace, console: Console) -> int:
    """Serve until Ctrl-C. Return 0; 2 if the port is taken.

    A kubeconfig that is missing or expired is shown on the page, which goes on when it is usable.
    """

    def scope(cluster: Cluster, read: Callable[[str | None], Any]) -> Any:
        return read_in_scope(args, cluster, read)

    show = printer(console)
    source = Source(
        lambda: Cluster(args.kubeconfig, args.context), scope, args.prometheus, args.record
    )
    try:
        listener = _listen(args.port)
    except OSError as error:
        show(f"error: --port: got {args.port}; not usable: {error.strerror}; pass another one")
        return 2
    port = listener.getsockname()[1]
    key = secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{port}/login?key={key}"
    try:
        runs = source.overview().listing.runs
        show(pluralize(len(runs), "run"))
    except ClusterError as error:
        show(f"the page shows this until it is mended: {error}")
    show(
        f"{address}\nThe address is for you alone: whoever has it sees what you may see. Ctrl-C ends the page."
    )
    if args.open:
        webbrowser.open(address)
    app = create_app(source, key, f"trainyard-ui-{port}")
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_STOP_S,
    )
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def _listen(wanted: int | None) -> socket.socket:
    """Return a socket on loopback. Raises OSError if the wanted port is taken."""
    for port in [PORT, 0] if wanted is None else [wanted]:
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("127.0.0.1", port))
        except OSError:
            found.close()
            if wanted is not None:
                raise
            continue
        found.listen(128)
        return found
    raise OSError(0, "no free port")
