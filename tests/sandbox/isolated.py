"""Run a server in a network namespace of its own: `python -m tests.sandbox.isolated OPTIONS -- COMMAND`.

MPI Operator and Training Operator listen on fixed ports of every interface, which cannot be configured. Here
they see an own loopback interface only. `--publish PORT=INNER` forwards 127.0.0.1:PORT to INNER inside;
`--reach PORT` lets the command connect to 127.0.0.1:PORT outside. Unix sockets in `--sockets` connect the two
sides. `--bind` and `--visible`: see `private_tmp`. This process becomes the command; a child on each side
forwards, and ends with it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from sandbox import paths
from sandbox.ports import LOOPBACK

_SET_PARENT_DEATH_SIGNAL = 1
_CHUNK_BYTES = 64 * 1024

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
Route = tuple[socket.socket, Connect]
"""A listening socket, and how to connect what it accepts."""


def main(argv: Sequence[str]) -> None:
    """Start the forwarding child of this side, then become bubblewrap, or the command inside of it."""
    options = _parser().parse_args(argv)
    if options.inside:
        _forward(_inner_routes(options))
        os.execvp(options.command[0], options.command)
    options.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
    _forward(_outer_routes(options))
    _enter_namespace(options, argv)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sandbox.isolated")
    parser.add_argument("--sockets", type=Path, required=True)
    parser.add_argument("--publish", action="append", default=[])
    parser.add_argument("--reach", type=int, action="append", default=[])
    parser.add_argument("--bind", action="append", default=[])
    parser.add_argument("--visible", type=Path, action="append", default=[])
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("command", nargs="+")
    return parser


def _enter_namespace(options: argparse.Namespace, argv: Sequence[str]) -> None:
    command = private_tmp(options.bind, [*options.visible, Path(options.command[0])])
    command += ["--bind", str(options.sockets), str(options.sockets), "--unshare-net"]
    again = [sys.executable, "-m", "tests.sandbox.isolated", "--inside", *argv]
    os.execvp("bwrap", [*command, "--", *again])


def private_tmp(binds: Sequence[str], visible: Sequence[Path]) -> list[str]:
    """Return a bubblewrap command with a /tmp that contains nothing but `binds` and what a command needs.

    `binds`: SOURCE=TARGET, where a controller expects its files. `visible`: files that it uses elsewhere.
    """
    words = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    kept: list[Path] = []
    for path in [paths.PROJECT, Path(sys.prefix), Path(sys.base_prefix), *visible]:
        if path.is_relative_to("/tmp") and not any(path.is_relative_to(one) for one in kept):
            kept.append(path)
            words += ["--ro-bind", str(path), str(path)]
    for bind in binds:
        words += ["--ro-bind", *bind.split("=", 1)]
    return words


def _outer_routes(options: argparse.Namespace) -> list[Route]:
    routes: list[Route] = []
    for pair in options.publish:
        port, inner = pair.split("=")
        routes.append((_tcp(int(port)), _to_unix(_socket(options, "in", inner))))
    for port in options.reach:
        routes.append((_unix(_socket(options, "out", port)), _to_tcp(port)))
    return routes


def _inner_routes(options: argparse.Namespace) -> list[Route]:
    routes: list[Route] = []
    for pair in options.publish:
        inner = pair.split("=")[1]
        routes.append((_unix(_socket(options, "in", inner)), _to_tcp(int(inner))))
    for port in options.reach:
        routes.append((_tcp(port), _to_unix(_socket(options, "out", port))))
    return routes


def _socket(options: argparse.Namespace, side: str, port: object) -> str:
    return str(options.sockets / f"{side}-{port}")


def _tcp(port: int) -> socket.socket:
    return socket.create_server((LOOPBACK, port))


def _unix(path: str) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener


def _to_tcp(port: int) -> Connect:
    return lambda: asyncio.open_connection(LOOPBACK, port)


def _to_unix(path: str) -> Connect:
    return lambda: asyncio.open_unix_connection(path)


def _forward(routes: Sequence[Route]) -> None:
    """Fork a child that serves the routes until this process ends."""
    parent = os.getpid()
    if os.fork():
        for listener, _ in routes:
            listener.close()
        return
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() == parent:
        asyncio.run(_serve(routes))
    os._exit(0)


async def _serve(routes: Sequence[Route]) -> None:
    servers = [
        await asyncio.start_server(_handler(connect), sock=listener)
        if listener.family == socket.AF_INET
        else await asyncio.start_unix_server(_handler(connect), sock=listener)
        for listener, connect in routes
    ]
    await asyncio.gather(*(server.serve_forever() for server in servers))


def _handler(
    connect: Connect,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await connect()
        except OSError:  # the command does not listen yet
            writer.close()
            return
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    return handle


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1:])
