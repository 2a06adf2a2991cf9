"""Linux process control that the launcher and the parent of each rank share."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

FORWARDED: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that ask a program to stop."""
_WAITED_FOR: Final = FORWARDED | {signal.SIGCHLD}

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


def block_signals() -> None:
    """Deliver signals to `wait_for_signal` only; call it before anything slow."""
    # A handler, or the kernel would drop SIGCHLD, and all signals in process 1 of a container.
    for number in _WAITED_FOR:
        signal.signal(number, _noop_handler)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)


def wait_for_signal(timeout_s: float) -> signal.Signals | None:
    """Return the next blocked signal, or None after the timeout."""
    found = signal.sigtimedwait(_WAITED_FOR, max(0.0, timeout_s))
    return signal.Signals(found.si_signo) if found else None


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent has ended, as process 1 is."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def start(
    command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> int:
    """Start a command as leader of a new session and process group; return its process id.

    It gets the signal state of a fresh process and is killed when this process ends. Raises OSError.
    """

    def prepare() -> None:
        die_with_parent(signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)

    child = subprocess.Popen(
        list(command), env=dict(environment), cwd=folder, start_new_session=True, preexec_fn=prepare
    )
    child.returncode = 0  # `reap` waits for it, not subprocess
    return child.pid


def reap() -> dict[int, int]:
    """Return the exit codes of ended children, adopted ones included, as subprocess gives them."""
    codes = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return codes


def children() -> list[int]:
    """Return the process ids of this process's children, adopted ones included."""
    found: list[int] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, file.read_text().split())
    return found


def handles(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal; False once it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def send(number: int, pids: Iterable[int], *, groups: bool = False) -> None:
    """Send a signal to processes, or to their process groups; those that have ended are skipped."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if groups:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


def _noop_handler(_: int, __: object) -> None:
    """Do nothing: the signal is read by `wait_for_signal`."""
