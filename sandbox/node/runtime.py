"""Starts containers and learns when they end."""

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
from pathlib import Path

from sandbox import paths
from sandbox.node import shim
from sandbox.node.records import Attempt, memory_folder, pod_folders, signal_process

log = logging.getLogger("runtime")

LOG_LIMIT_BYTES = 10 * 2**20
"""A log is rotated at this size, and one older file is kept: the kubelet's default."""


class RuntimeUnavailable(Exception):
    """bubblewrap is missing or cannot make a container on this machine."""


def check_bubblewrap() -> str:
    """Version of a working bubblewrap. Raises RuntimeUnusable with the remedy."""
    found = shutil.which("bwrap")
    if not found:
        raise RuntimeUnavailable("bwrap not found; install bubblewrap (apt-get install bubblewrap)")
    probe = [found, *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    answer = subprocess.run(probe, capture_output=True, text=True, timeout=20)
    if answer.returncode:
        raise RuntimeUnavailable(
            f"bwrap cannot make a container here: {answer.stderr.strip() or answer.returncode}; "
            "user namespaces and mounting /proc must be allowed"
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
"""What every container has of its own. The network is the host's: that is what a loopback IP needs."""


def start_container(
    attempt: Attempt, options: Sequence[str], command: Sequence[str]
) -> subprocess.Popen[bytes]:
    """Starts a container under a new shim, which goes on if this process dies.

    `options` are bubblewrap's; `command` is run in the container. Returns the shim.
    """
    attempt.log.parent.mkdir(parents=True, exist_ok=True)
    spec = {
        "bwrap": shutil.which("bwrap") or "bwrap",
        "options": [*NAMESPACES, "--info-fd", str(shim.INFO_FD), *options],
        "command": list(command),
        "log": str(attempt.log),
        "log_limit_bytes": LOG_LIMIT_BYTES,
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
        os.close(lock)  # the shim has the other reference to the same lock


class Exits(threading.Thread):
    """Calls back when shims end; costs nothing while none does. Reaps those that we started."""

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
        """Calls `callback` once the attempt's shim has ended, at once if it already has.

        `process`: the shim, when it is a child of ours.
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
                except Exception:  # one pod's trouble must not deafen the others
                    log.exception("exit callback")


def stop_all(state: paths.State, wait_s: float = 10.0) -> int:
    """Ends every container of this sandbox, and nothing else; gives how many were running.

    Processes are found by recorded pid and start time. Call it once the agent has stopped: a live
    agent would start them anew. Returns when they are gone, or after `wait_s`.
    """
    running = [a for place in pod_folders(state) for a in place.all_attempts() if a.alive()]
    for attempt in running:
        attempt.mark("stopped")
    end_containers(running, wait_s)
    shutil.rmtree(memory_folder(state), ignore_errors=True)
    return len(running)


def end_containers(attempts: Sequence[Attempt], wait_s: float) -> None:
    """SIGKILL to all of them; returns when they and their shims are gone, or after `wait_s`."""
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
            signal_process(run["shim_pid"], run["shim_start"], signal.SIGKILL)
