"""Keep the services of one sandbox running.

`python -m sandbox.supervisor` reads `services.json` in the sandbox's folder, starts what does not run, and
restarts what dies (backoff: 0.5 s, doubled up to 30 s). Each service has a pid file: services outlive a
killed supervisor and the next one adopts them. SIGHUP reloads the file and stops services that it no longer
lists. SIGTERM ends the supervisor only; `make down` stops the services one by one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import paths, process
from sandbox.process import Process

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
STABLE_AFTER_S = 60.0
"""A service that ran this long restarts with the first delay."""
STOP_GRACE_S = 10.0


@dataclass
class ServiceState:
    spec: dict[str, Any]
    process: Process | None = None
    started: float = 0.0
    delay: float = FIRST_DELAY_S
    next_try: float = 0.0


class Supervisor:
    """The supervision loop; one per sandbox, recorded in the pid file `supervisor.json`."""

    def __init__(self, state: paths.State) -> None:
        self._state = state
        self._entries: dict[str, ServiceState] = {}
        self._reload = True
        self._stop = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        while not self._stop:
            if self._reload:
                self._reload = False
                self._load()
            process.reap()
            wait_s = min((self._reconcile(name) for name in self._entries), default=1.0)
            self._sleep(wait_s)

    def _on_stop(self, _number: int, _frame: object) -> None:
        self._stop = True

    def _on_reload(self, _number: int, _frame: object) -> None:
        self._reload = True

    def _load(self) -> None:
        specs = json.loads(services_file(self._state).read_text())
        wanted = {spec["name"] for spec in specs}
        for name in set(self._entries) - wanted:
            del self._entries[name]
        for pid_file in sorted(self._state.pids.glob("*.json")):
            if pid_file.stem not in wanted | {"supervisor"}:
                self._stop_unlisted(pid_file)
        for spec in specs:
            self._adopt(spec)

    def _adopt(self, spec: dict[str, Any]) -> None:
        name = spec["name"]
        pid_file = self._state.pids / f"{name}.json"
        running = process.load(pid_file)
        if running and running.alive and _recorded_spec(pid_file) != fingerprint(spec):
            log(f"{name}: command changed, restarting")
            running.end(STOP_GRACE_S)
        self._entries[name] = ServiceState(spec, running, started=time.monotonic())

    def _stop_unlisted(self, pid_file: Path) -> None:
        running = process.load(pid_file)
        if running and running.alive:
            log(f"{pid_file.stem}: no longer listed, stopping pid {running.pid}")
            running.end(STOP_GRACE_S)
        pid_file.unlink(missing_ok=True)

    def _reconcile(self, name: str) -> float:
        """Restart the service if it is dead and due; return the seconds until the next check."""
        entry = self._entries[name]
        if entry.process and entry.process.alive:
            return 5.0
        now = time.monotonic()
        if entry.process:
            log(f"{name}: pid {entry.process.pid} ended")
            if now - entry.started > STABLE_AFTER_S:
                entry.delay = FIRST_DELAY_S
            entry.process, entry.next_try = None, now + entry.delay
            entry.delay = min(entry.delay * 2, LONGEST_DELAY_S)
        if now < entry.next_try:
            return entry.next_try - now
        self._start(name, entry)
        return 1.0

    def _start(self, name: str, entry: ServiceState) -> None:
        spec = entry.spec
        log_file = self._state.logs / f"{name}.log"
        rotate(log_file)
        marker = service_marker(self._state, name)
        # A process started just before an earlier supervisor was killed has no pid file.
        for lost in process.find_by_marker(marker):
            lost.end(STOP_GRACE_S)
        env = spec["env"] | {"SANDBOX_SERVICE": marker}
        entry.process = process.spawn(spec["argv"], env, self._state.home, log_file)
        entry.started = time.monotonic()
        process.save(self._state.pids / f"{name}.json", entry.process, spec=fingerprint(spec))
        log(f"{name}: started, pid {entry.process.pid}")

    def _sleep(self, timeout_s: float) -> None:
        """Sleep until a service ends, a signal arrives, or the timeout."""
        handles = []
        poll = select.poll()
        for entry in self._entries.values():
            if entry.process:
                with contextlib.suppress(OSError):
                    handle = os.pidfd_open(entry.process.pid)
                    handles.append(handle)
                    poll.register(handle, select.POLLIN)
        wakeup_read, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        previous = signal.set_wakeup_fd(wakeup_write)
        poll.register(wakeup_read, select.POLLIN)
        try:
            if not (self._stop or self._reload):
                poll.poll(timeout_s * 1000)
        finally:
            signal.set_wakeup_fd(previous)
            for handle in (*handles, wakeup_read, wakeup_write):
                os.close(handle)


def services_file(state: paths.State) -> Path:
    """File that lists the services to run."""
    return state.home / "services.json"


def service_marker(state: paths.State, name: str) -> str:
    """Marker in a service's environment that identifies it without a pid file."""
    return f"{state.home}/{name}"


def fingerprint(spec: dict[str, Any]) -> str:
    text = json.dumps([spec["argv"], spec["env"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def rotate(path: Path, limit_bytes: int = 50 * 1024**2) -> None:
    if path.exists() and path.stat().st_size > limit_bytes:
        path.replace(path.with_suffix(".log.1"))


def log(text: str) -> None:
    print(time.strftime("%Y-%m-%dT%H:%M:%S"), text, flush=True)


def _recorded_spec(pid_file: Path) -> str:
    try:
        recorded: str = json.loads(pid_file.read_text())["spec"]
    except (OSError, ValueError, KeyError):
        return ""
    return recorded


def main() -> int:
    state = paths.state()
    Supervisor(state).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
