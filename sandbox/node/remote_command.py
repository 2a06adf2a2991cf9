"""`kubectl exec` in a container of a process node: streams of the connection to a command in its namespaces."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
import struct
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.node.container_entry import Entered, EntryError, error_of, start_command
from sandbox.node.records import Attempt
from sandbox.node.spdy import Connection, Stream

log = logging.getLogger("exec")

PROTOCOL = "v4.channel.k8s.io"
"""Streams `error`, `stdin`, `stdout`, `stderr` and `resize`; the result is a Status on `error`."""

STREAMS_S = 30.0
"""How long the client has to open its streams, as for the kubelet."""
DRAIN_S = 2.0
_CHECK_S = 1.0
_READ_BYTES = 65536


@dataclass
class _Streams:
    wanted: frozenset[str]
    found: dict[str, Stream] = field(default_factory=dict)
    complete: threading.Event = field(default_factory=threading.Event)

    def opened(self, stream: Stream) -> None:
        kind = stream.headers.get("streamtype", "")
        if kind not in self.wanted or kind in self.found:
            stream.reset()
            return
        self.found[kind] = stream
        if self.found.keys() == self.wanted:
            self.complete.set()


@dataclass(frozen=True)
class Request:
    command: list[str]
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @property
    def streams(self) -> frozenset[str]:
        asked = {
            "stdin": self.stdin,
            "stdout": self.stdout,
            "stderr": self.stderr and not self.tty,
            "resize": self.tty,
        }
        return frozenset({"error", *(kind for kind, yes in asked.items() if yes)})


def parse_request(query: Mapping[str, list[str]]) -> Request:
    def asked(name: str) -> bool:
        return query.get(name, [""])[-1] in ("1", "true")

    return Request(
        command=query.get("command", []),
        stdin=asked("input"),
        stdout=asked("output"),
        stderr=asked("error"),
        tty=asked("tty"),
    )


def serve(connection: socket.socket, attempt: Attempt, request: Request) -> None:
    """Run the command until it ends or the client leaves; blocks."""
    streams = _Streams(request.streams)
    spdy = Connection(connection, streams.opened)
    threading.Thread(target=spdy.serve, name="exec connection", daemon=True).start()
    try:
        if not streams.complete.wait(STREAMS_S):
            log.debug("the client opened only %s", sorted(streams.found))
            return
        error = streams.found["error"]
        try:
            status = exit_status(_run(attempt, request, streams.found, spdy))
        except (EntryError, OSError) as failure:
            status = _failure("InternalError", f"exec: {failure}")
        error.write(json.dumps(status).encode())
        for kind in ("stdout", "stderr", "error"):
            if kind in streams.found:
                streams.found[kind].close()
        spdy.finish()
    except OSError:
        pass  # the client has left
    finally:
        spdy.close()


def exit_status(code: int) -> dict[str, Any]:
    """Return the Status that tells the client the exit code."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    message = f"command terminated with non-zero exit code: {code}"
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return _failure("NonZeroExitCode", message) | {"details": {"causes": causes}}


def _failure(reason: str, message: str) -> dict[str, Any]:
    return {"metadata": {}, "status": "Failure", "reason": reason, "message": message}


def _run(
    attempt: Attempt, request: Request, streams: Mapping[str, Stream], spdy: Connection
) -> int:
    """Start the command, copy its streams and return its exit code."""
    entered, pipes = _start_command(attempt, request)
    with entered.control:
        try:
            if request.tty:
                pipes["terminal"] = _receive_terminal(entered.control)
            outputs = _copy(pipes, streams)
            while not entered.has_answered(_CHECK_S):
                if spdy.has_ended:
                    entered.process.send_signal(signal.SIGHUP)
            code = entered.exit_code()
            _drain(outputs)
            return code
        finally:
            entered.process.wait()


def _start_command(attempt: Attempt, request: Request) -> tuple[Entered, dict[str, int]]:
    """Start the command; return it and our ends of its pipes (none with a terminal)."""
    ends: dict[str, int] = {}
    ours: dict[str, int] = {}
    asked = {"stdin": request.stdin, "stdout": request.stdout, "stderr": request.stderr}
    for kind in (kind for kind, yes in asked.items() if yes and not request.tty):
        reader, writer = os.pipe()
        ends[kind], ours[kind] = (reader, writer) if kind == "stdin" else (writer, reader)
    try:
        return start_command(attempt, request.command, tty=request.tty, **ends), ours
    except BaseException:
        for fd in ours.values():
            os.close(fd)
        raise
    finally:
        for fd in ends.values():
            os.close(fd)


def _receive_terminal(control: socket.socket) -> int:
    data, fds, _, _ = socket.recv_fds(control, 1, 1)
    if fds:
        return fds[0]
    rest = data + control.makefile("rb").readline()
    raise EntryError(error_of(rest))


class _Output(threading.Thread):
    """Copies what the command writes until its last process has closed it."""

    def __init__(self, fd: int, stream: Stream) -> None:
        super().__init__(name="exec output", daemon=True)
        self.copied = 0
        self._fd, self._stream = fd, stream

    def run(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the terminal's last process has ended
            while data := os.read(self._fd, _READ_BYTES):
                self._stream.write(data)
                self.copied += len(data)
        os.close(self._fd)


def _copy(fds: dict[str, int], streams: Mapping[str, Stream]) -> list[_Output]:
    """Start copying between descriptors and streams; each thread closes its descriptor. Return the outputs."""
    terminal = fds.get("terminal")
    if terminal is not None:
        if "stdin" in streams:
            _start(_copy_input, streams["stdin"], os.dup(terminal), b"\x04")
        _start(_copy_sizes, streams["resize"], os.dup(terminal))
        outputs = [_Output(terminal, streams["stdout"])] if "stdout" in streams else []
    else:
        if "stdin" in fds:
            _start(_copy_input, streams["stdin"], fds["stdin"], b"")
        outputs = [
            _Output(fds[kind], streams[kind]) for kind in ("stdout", "stderr") if kind in fds
        ]
    for output in outputs:
        output.start()
    return outputs


def _drain(outputs: Sequence[_Output]) -> None:
    """Wait for the output; not for a background process of the command that writes nothing more."""
    for output in outputs:
        before = -1
        while output.is_alive() and output.copied != before:
            before = output.copied
            output.join(DRAIN_S)


def _start(target: Callable[..., None], *args: object) -> None:
    threading.Thread(target=target, args=args, name=target.__name__, daemon=True).start()


def _copy_input(stream: Stream, fd: int, end: bytes) -> None:
    """Copy the client's input; `end`: written at its end, as a keyboard's Ctrl-D to a terminal."""
    with contextlib.suppress(OSError):
        while data := stream.read():
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
        if end:
            os.write(fd, end)
    os.close(fd)


def _copy_sizes(stream: Stream, terminal: int) -> None:
    pending = b""
    while data := stream.read():
        pending += data
        *lines, pending = pending.split(b"\n")
        for line in [*lines, pending]:
            with contextlib.suppress(ValueError, KeyError, OSError, struct.error):
                size = json.loads(line)
                packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, packed)
                pending = b""
    os.close(terminal)
