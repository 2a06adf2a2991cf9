"""Start containers and watch for their exit."""

from __future__ import annotations

import fcntl
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox import paths
from sandbox.node import shim
from sandbox.node.records import Attempt, memory_folder, pod_folders
from sandbox.process import Process

log = logging.getLogger("runtime")

LOG_LIMIT_BYTES = 10 * 2**20
"""Size at which a log is rotated (the kubelet's default); one older file is kept."""


class RuntimeUnavailable(Exception):
    """bubblewrap is missing or cannot create containers on this machine."""


def check_bubblewrap() -> str:
    found = shutil.which("bwrap")
    if not found:
        raise RuntimeUnavailable("bwrap not found; install bubblewrap (apt-get install bubblewrap)")
    probe = [found, *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    answer = subprocess.run(probe, capture_output=True, text=True, timeout=20)
    if answer.returncode:
        raise RuntimeUnavailable(
            f"bwrap cannot create a container: {answer.stderr.strip() or answer.returncode}; "
            "allow user namespaces and mounting /proc"
        )
    version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=20)
    return version.stdout.split()[-1]


NAMESPACES = (
    "--unshare-user",
    "--unshare-pid",
    "--as-pid-1",
    "--unshare-uts",
    "--unshare-ipc",
    "--unshare-cgroup-try",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
)
"""Isolation of every container. The network is the host's, since pod addresses are loopback addresses."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    options: Sequence[str] = ()
    """bubblewrap's."""
    command: Sequence[str]
    """Run in the container."""
    listen_at: str = ""
    """Where its servers listen that ask for every interface (listening.py), unless empty."""


def start_container(attempt: Attempt, launch: Launch) -> subprocess.Popen[bytes]:
    """Start a container under a new shim, which outlives this process; return the shim."""
    attempt.log.parent.mkdir(parents=True, exist_ok=True)
    spec = {
        "bwrap": shutil.which("bwrap") or "bwrap",
        "options": [*NAMESPACES, "--info-fd", str(shim.INFO_FD), *launch.options],
        "command": list(launch.command),
        "log": str(attempt.log),
        "log_limit_bytes": LOG_LIMIT_BYTES,
        "listen_at": launch.listen_at,
    }
    lock = os.open(attempt.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shim.save(str(attempt.path), "spec.json", spec)
        return subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                "-E",
                str(Path(shim.__file__)),
                str(attempt.path),
                str(lock),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[lock],
            start_new_session=True,
            cwd="/",
            env={"LANG": "C.UTF-8"},
        )
    finally:
        os.close(lock)  # the shim keeps its reference to the lock


class Exits(threading.Thread):
    """Calls back when shims end, and reaps those that this process started."""

    def __init__(self) -> None:
        super().__init__(name="exits", daemon=True)
        self._epoll = select.epoll()
        self._waiting: dict[int, tuple[Callable[[], None], subprocess.Popen[bytes] | None]] = {}

    def watch(
        self,
        attempt: Attempt,
        callback: Callable[[], None],
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        """Call `callback` when the attempt's shim ends, immediately if it has ended.

        `process`: the shim, if it is a child of this process.
        """
        fd = os.pidfd_open(process.pid) if process else attempt.open_shim()
        if fd is None:
            callback()
            return
        self._waiting[fd] = (callback, process)
        self._epoll.register(fd, select.EPOLLIN)

    def run(self) -> None:
        while True:
            for fd, _ in self._epoll.poll():
                self._epoll.unregister(fd)
                callback, process = self._waiting.pop(fd)
                os.close(fd)
                if process:
                    process.wait()
                try:
                    callback()
                except Exception:  # an error in one callback must not stop the others
                    log.exception("exit callback")


def stop_all(state: paths.State, wait_s: float = 10.0) -> int:
    """Stop every container of this sandbox; return how many were running.

    Processes are identified by recorded pid and start time. The agent must have stopped: it would
    restart them. Returns when all have ended, or after `wait_s`.
    """
    running = [a for place in pod_folders(state) for a in place.all_attempts() if a.alive()]
    for attempt in running:
        attempt.mark("stopped")
    end_containers(running, wait_s)
    shutil.rmtree(memory_folder(state), ignore_errors=True)
    return len(running)


def end_containers(attempts: Sequence[Attempt], wait_s: float) -> None:
    """Send SIGKILL to all; return when they and their shims have ended, or after `wait_s`."""
    for attempt in attempts:
        attempt.kill()
    watched = [fd for fd in (attempt.open_shim() for attempt in attempts) if fd is not None]
    deadline = time.monotonic() + wait_s
    for fd in watched:
        select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        os.close(fd)
    for attempt in attempts:
        run = attempt.run()
        if run and attempt.alive():
            Process(run["shim_pid"], run["shim_start"]).send(signal.SIGKILL)
