"""Startup and shutdown of the sandbox's Pulumi plugin processes.

The engine starts a plugin in a separate process group, reads the port from the first line of its standard
output, and stops it with SIGINT. A plugin ends with its engine.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

MAX_MESSAGE_BYTES = 400 * 1024 * 1024
"""The message size that the engine and the SDKs use."""

PARENT_CHECK_SECONDS = 1.0
"""Interval of the check that the engine is alive: a killed engine sends no signal."""

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
]


def engine_address(arguments: list[str]) -> str | None:
    positional = [argument for argument in arguments if not argument.startswith("-")]
    return positional[-1] if positional else None


def skip_sdk_import() -> None:
    """Make the protocol's stubs importable without importing the Pulumi SDK around them.

    `pulumi.runtime.proto` is part of the SDK, whose import dominates a plugin's start. Only for processes
    that are plugins and nothing else.
    """
    found = importlib.util.find_spec("pulumi")
    folders = list(found.submodule_search_locations or ()) if found else []
    for name, tail in (("pulumi", ""), ("pulumi.runtime", "runtime")):
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(folder, tail) for folder in folders]
        sys.modules[name] = package


def serve(
    register: Callable[[grpc.Server], None], *, workers: int, on_stop: Callable[[], None]
) -> None:
    """Serve on a free loopback port until SIGINT, SIGTERM or the engine's death; then exit 0.

    `register` adds the servicers, `on_stop` cancels work in progress, `workers` bounds concurrent calls.
    Never returns: threads that hang in a call must not keep the process alive.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    parent = os.getppid()
    server = grpc.server(ThreadPoolExecutor(workers), options=CHANNEL_OPTIONS)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    while not stop.wait(PARENT_CHECK_SECONDS):
        if os.getppid() != parent:
            break
    on_stop()
    server.stop(None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
