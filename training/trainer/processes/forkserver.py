"""A fork server: loads what ranks import, then forks ranks on request.

Importing torch takes seconds; a fork of a process that has done so starts at once.
The fork server is forked from the launcher before that has a second thread; it stays single-threaded
and never initializes CUDA, so that forking is safe. This module imports only the standard library and
trainyard.

The launcher and the fork server exchange lines of JSON over a socket pair:

    launcher: {"fork": {"arguments", "environment", "stdout", "stderr"}}   {"kill": PID, "signal": N}
    server:   {"ready": null or why not}   {"forked": PID or null}   {"ended": PID, "code": N}
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from trainyard.contract import EXIT_DIR_ENV
from trainyard.exit_codes import ExitDir, RankResult, report_exit_code

PROGRAM: Final = "training.trainer"
"""The module that ranks run."""
PRELOADED: Final = (
    "training.trainer.assembly",
    "training.trainer.loop",
    "training.trainer.preflight",
)
"""What every rank imports before its first step; see preload.py for the rest."""
_LAUNCHER_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals handled by the launcher, not by the fork server."""


@dataclass(frozen=True, kw_only=True)
class RankSpec:
    """A rank to be forked."""

    arguments: Sequence[str]
    """Of `python -m training.trainer`."""
    environment: Mapping[str, str]
    """The whole environment; nothing is inherited."""
    stdout: str | None
    """File to write to; None inherits the launcher's."""
    stderr: str | None


def serve(channel: socket.socket, arguments: Sequence[str] = ()) -> NoReturn:
    """Serve requests until the launcher is gone and every rank has ended.

    `arguments`: of the ranks' program, to load what their configuration needs.
    """
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _LAUNCHER_SIGNALS)
        signal.set_wakeup_fd(-1)
        mistake = _load(arguments)
        channel.sendall(_line({"ready": mistake}))
        if mistake is None:
            _RankForker(channel).serve()
    except BrokenPipeError:
        pass  # the launcher has ended meanwhile
    except BaseException:
        traceback.print_exc()
    finally:  # never on into what the launcher would do next
        os._exit(0)


def _load(arguments: Sequence[str]) -> str | None:
    """Import everything; return why that failed, or None."""
    try:
        for name in PRELOADED:
            importlib.import_module(name)
        _load_more(arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1:
        return f"{len(threads)} threads after loading; forking is unsafe with more than one"
    if sys.modules["torch"].cuda.is_initialized():
        return "CUDA was initialized while loading"
    gc.collect()
    gc.freeze()  # otherwise each rank's first collection copies all pages
    return None


def _load_more(arguments: Sequence[str]) -> None:
    from training.trainer.processes.preload import more_modules

    for name in more_modules(arguments):
        with contextlib.suppress(ImportError):  # a rank says what is wrong
            importlib.import_module(name)


@dataclass
class _RankForker:
    """Forks ranks and reports their exit codes."""

    channel: socket.socket
    alive: dict[int, RankSpec] = field(default_factory=dict)
    _received: bytes = b""

    def serve(self) -> None:
        """Until the launcher is gone and no rank is left."""
        woken, wakes = socket.socketpair()
        woken.setblocking(False)
        wakes.setblocking(False)
        signal.signal(signal.SIGCHLD, _noop_handler)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        waited_for: list[Any] = [self.channel, woken]
        while self.alive or self.channel in waited_for:
            readable, _, _ = select.select(waited_for, [], [])
            if woken in readable:
                woken.recv(4096)
                self._reap()
            if self.channel in readable and not self._take_requests():
                waited_for.remove(self.channel)
                for pid in self.alive:  # nothing else can end them now
                    os.killpg(pid, signal.SIGTERM)

    def _take_requests(self) -> bool:
        """Handle the launcher's requests; return whether it is still there."""
        try:
            content = self.channel.recv(65536)
        except ConnectionResetError:
            return False
        *lines, self._received = (self._received + content).split(b"\n")
        for line in lines:
            self._answer(json.loads(line))
        return bool(content)

    def _answer(self, request: dict[str, Any]) -> None:
        if "fork" in request:
            self._send({"forked": self._fork(RankSpec(**request["fork"]))})
        elif request["kill"] in self.alive:
            os.killpg(request["kill"], request["signal"])

    def _reap(self) -> None:
        for pid in sorted(self.alive):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                _record(self.alive.pop(pid), code)
                self._send({"ended": pid, "code": code})

    def _fork(self, spec: RankSpec) -> int | None:
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            print(f"launch: cannot fork a rank: {error}", file=sys.stderr, flush=True)
            return None
        if pid == 0:
            os.setsid()
            os.close(writer)  # now its process group exists
            os.close(reader)
            self.channel.close()
            run_as_rank(spec)
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        self.alive[pid] = spec
        return pid

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.channel.sendall(_line(message))


def _record(spec: RankSpec, code: int) -> None:
    """Record the exit code of a rank that could not do so, because a signal ended it."""
    if folder := spec.environment.get(EXIT_DIR_ENV):
        result = RankResult(int(spec.environment["RANK"]), code, time.time())
        ExitDir(Path(folder)).add_result(result)


def run_as_rank(spec: RankSpec) -> NoReturn:
    """Run the trainer in this fork and exit with its code."""
    code = 1
    try:
        for path, descriptor in ((spec.stdout, 1), (spec.stderr, 2)):
            if path:
                opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                os.dup2(opened, descriptor)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        os.environ.clear()
        os.environ.update(spec.environment)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, _exit_preempted)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _LAUNCHER_SIGNALS)
        sys.argv = [PROGRAM, *spec.arguments]
        runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _exit_preempted(_: int, __: FrameType | None) -> None:
    """Exit on SIGTERM before the program listens: there is nothing to save."""
    from training.spec import EXIT_PREEMPTED

    report_exit_code(EXIT_PREEMPTED)
    os._exit(EXIT_PREEMPTED)


def _noop_handler(_: int, __: FrameType | None) -> None:
    """Do nothing: the wake-up descriptor is only written for signals with a handler."""


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"
