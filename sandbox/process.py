"""Processes identified by pid and start time: a reused pid is a different process."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process of the sandbox. `start_ticks`: field 22 of `/proc/PID/stat`."""

    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        return _start_ticks(self.pid) == self.start_ticks

    def open(self) -> int | None:
        """Return a pidfd, which becomes readable when the process ends; None when it has ended."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self.alive:
            return handle
        os.close(handle)  # the pid was reused
        return None

    def send(self, number: int) -> bool:
        """Send a signal to the process, never to another one with its pid; return False when it has ended."""
        handle = self.open()
        if handle is None:
            return False
        try:
            signal.pidfd_send_signal(handle, number)
            return True
        except OSError:
            return False
        finally:
            os.close(handle)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the process; return False when it still runs after `timeout_s`."""
        handle = self.open()
        if handle is None:
            return True
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            return bool(poll.poll(timeout_s * 1000)) or not self.alive
        finally:
            os.close(handle)

    def end(self, grace_s: float) -> None:
        """Send SIGTERM to the process group, then SIGKILL if it still runs after `grace_s`."""
        self._signal_group(signal.SIGTERM)
        if not self.wait(grace_s):
            self._signal_group(signal.SIGKILL)
            self.wait(grace_s)

    def _signal_group(self, number: signal.Signals) -> None:
        if not self.alive:
            return
        try:
            leads = os.getpgid(self.pid) == self.pid
            os.killpg(self.pid, number) if leads else os.kill(self.pid, number)
        except ProcessLookupError:
            return


def from_pid(pid: int) -> Process | None:
    """Return the process that has this pid now; None without one."""
    ticks = _start_ticks(pid)
    return None if ticks is None else Process(pid, ticks)


def spawn(argv: list[str], env: dict[str, str], cwd: Path, log: Path) -> Process:
    """Start a process in its own session, its output appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        started = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return from_pid(started.pid) or Process(started.pid, -1)


def reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def load(path: Path) -> Process | None:
    """Return the process that a pid file names, running or not; None without a valid file."""
    try:
        fields = json.loads(path.read_text())
        return Process(int(fields["pid"]), int(fields["start_ticks"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(path: Path, process: Process, **more: str) -> None:
    """Write a pid file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(process) | more))
    partial.rename(path)


def find_by_marker(marker: str) -> list[Process]:
    """Return the processes of this user with `SANDBOX_SERVICE=marker` in their environment."""
    wanted = f"SANDBOX_SERVICE={marker}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            entries = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in entries and (running := from_pid(int(folder.name))):
            found.append(running)
    return found


def _start_ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])
