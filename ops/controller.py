"""Commands that look at the cluster and act again and again, in the cluster or by hand."""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from ops.cluster import Cluster, ClusterError
from ops.lease import Lease

LEAST_S: Final = 1.0
T = TypeVar("T")


def lease_name(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise argparse.ArgumentTypeError(f"got {text}; expected NAMESPACE/NAME")
    return namespace, name


def read_published(option: str, file: Path, what: str, parse: Callable[[Any], T]) -> T:
    """Return what a stack has written to a file for a control loop. Raises ClusterError."""
    try:
        return parse(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ClusterError(f"{option}: {file}: not readable: {error.strerror}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise ClusterError(
            f"{option}: {file}: not the stack's {what} ({error!r}); run pulumi up to write it again"
        ) from None


def add_options(command: argparse.ArgumentParser, every_s: float, once: str) -> None:
    """Add --lease, --once, --dry-run and --every. `once`: what --once does."""
    command.add_argument(
        "--lease",
        type=lease_name,
        metavar="NAMESPACE/NAME",
        help="write only while this process holds the Lease; the others wait",
    )
    command.add_argument("--once", action="store_true", help=once)
    command.add_argument("--dry-run", action="store_true", help="say what would be done")
    command.add_argument(
        "--every", type=float, default=every_s, metavar="SECONDS", help="default %(default)g"
    )


def lease_of(args: argparse.Namespace, cluster: Cluster) -> Lease | None:
    """Return the Lease of --lease, which is given up on SIGTERM; None without the option."""
    if not args.lease:
        return None
    # The first process of a container ignores SIGTERM without a handler.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    namespace, name = args.lease
    return Lease(cluster, namespace, name, f"{socket.gethostname()}-{secrets.token_hex(4)}")


def repeat(
    args: argparse.Namespace,
    step: Callable[[], float | None],
    lease: Lease | None,
    show: Callable[[str], None],
    looks: int = 1,
) -> int:
    """Take steps until the process ends, whatever fails meanwhile; with --once so many `looks`. Return 0.

    `step` returns after how many seconds to look again at the latest, at least LEAST_S; None: as --every says.
    """
    failed = ""
    try:
        while True:
            soon: float | None = None
            try:
                soon = step()
                looks -= 1
                failed = ""
            except ClusterError as error:
                if args.once:
                    raise
                if str(error) != failed:
                    show(f"nothing done: {error}")
                failed = str(error)
            if args.once and looks <= 0:
                return 0
            pause = LEAST_S if args.once else args.every
            time.sleep(pause if soon is None else max(LEAST_S, min(pause, soon)))
    finally:
        if lease:
            with contextlib.suppress(ClusterError):
                lease.release()
