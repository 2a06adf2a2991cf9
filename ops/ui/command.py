"""`trainyard ui`."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import socket
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn
from rich.console import Console
from starlette.applications import Starlette

from ops.cluster import Cluster, ClusterError
from ops.commands import Group, add_cluster, add_prometheus, printer
from ops.ledger.command import add_record
from ops.runs.scope import read_in_scope
from ops.snapshot import pluralize
from ops.ui.server import create_app, create_shared_app, redirection
from ops.ui.source import Source
from ops.ui.users import USER_HEADER, Naming, UserSources

PORT: Final = 8642
EXAMPLES: Final = (
    "ui                                # print the address of the page; Ctrl-C ends it",
    "ui --team research --open         # runs of one team, in the browser",
)
_STOP_S: Final = 1
"""Seconds that open event streams have at the end."""


def add(commands: Group) -> None:
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
    command.add_argument(
        "--behind-proxy",
        action="store_true",
        help="serve users whom a proxy on this loopback signs in, each with their own rights",
    )
    command.add_argument(
        "--teams",
        type=lambda text: text.split(","),
        default=[],
        metavar="TEAM,...",
        help="with --behind-proxy: the teams that may be shown",
    )
    for what in ("user", "group"):
        command.add_argument(
            f"--{what}-prefix",
            default="",
            metavar="TEXT",
            help=f"with --behind-proxy: the API server's prefix of {what} names",
        )
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
    if args.behind_proxy:
        return _serve_users(args, show)
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
    with _opened(address) if args.open else contextlib.nullcontext():
        _serve(create_app(source, key, f"trainyard-ui-{port}"), listener)
    return 0


@contextlib.contextmanager
def _opened(address: str) -> Iterator[None]:
    """Open an address in the browser, by a file that only this user can read, and remove the file at the end.

    Other users of the machine can read a browser's arguments, and the address has the key.
    """
    with tempfile.TemporaryDirectory(prefix="trainyard-ui-") as folder:
        file = Path(folder) / "open.html"
        file.touch(mode=0o600)
        file.write_text(redirection(address), encoding="utf-8")
        webbrowser.open(file.as_uri())
        yield


def _serve_users(args: argparse.Namespace, show: Callable[[str], None]) -> int:
    if not args.teams or args.record or args.open:
        show("error: --behind-proxy: requires --teams, and neither --record nor --open is valid")
        return 2
    try:
        listener = _listen(args.port or PORT)
    except OSError as error:
        show(f"error: --port: got {args.port or PORT}; not usable: {error.strerror}")
        return 2
    names = Naming(user_prefix=args.user_prefix, group_prefix=args.group_prefix)
    users = UserSources(lambda: Cluster(args.kubeconfig, args.context), args.teams, args.prometheus)
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    show(f"{address}: for a proxy that signs users in, and overwrites {USER_HEADER}")
    app = create_shared_app(lambda request: users.of(names.user(request.headers)))
    _serve(app, listener)
    return 0


def _serve(app: Starlette, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_STOP_S,
    )
    uvicorn.Server(config).run(sockets=[listener])


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
