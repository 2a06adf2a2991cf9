"""One container of a pod: its attempts, restart backoff and reported state."""

from __future__ import annotations

import logging
import signal
import subprocess
import time
from collections.abc import Callable

from sandbox.node import runtime
from sandbox.node.api import Json
from sandbox.node.records import EXIT_KILLED, Attempt, PodFolder
from sandbox.node.status import ContainerView, terminated

log = logging.getLogger("container")

BACKOFF_FIRST_S = 10.0
BACKOFF_LAST_S = 300.0
BACKOFF_RESET_S = 600.0
"""As the kubelet: the first restart is immediate, then 10 s doubling to 5 min; reset after 10 min."""
PULL_BACKOFF_FIRST_S = 10.0
PULL_BACKOFF_LAST_S = 300.0
MESSAGE_BYTES = 4096


def restart_delay(runs: list[float]) -> float:
    """Return the seconds to wait before a restart. `runs`: durations of all ended attempts in order."""
    streak = 0
    for seconds in runs:
        streak = 1 if seconds >= BACKOFF_RESET_S else streak + 1
    if streak <= 1:
        return 0.0
    return float(min(BACKOFF_FIRST_S * 2 ** (streak - 2), BACKOFF_LAST_S))


class Container:
    """State of one container. What must outlive the agent is in its attempts' folders."""

    def __init__(self, spec: Json, folder: PodFolder, init: bool = False) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.sidecar = init and spec.get("restartPolicy") == "Always"
        self.init = init and not self.sidecar
        """Whether it runs to its end before the main containers start."""
        self.image_id = ""
        self.waiting: tuple[str, str] | None = None
        self.not_before = 0.0
        """time.monotonic() of the next attempt to create it."""
        self.create_failures = 0
        self.ready = not spec.get("readinessProbe")
        self._folder = folder
        self.attempts: list[Attempt] = folder.attempts(self.name)

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    def exit_code(self) -> int | None:
        exit_ = self.last.exit() if self.last else None
        return int(exit_["exit_code"]) if exit_ else None

    def running(self) -> Attempt | None:
        last = self.last
        return last if last and last.exit() is None else None

    def next_start(self) -> float:
        """Return the wall-clock time of the next restart according to the backoff."""
        runs: list[float] = []
        finished = 0.0
        for attempt in self.attempts:
            if attempt.marked("stopped"):  # with the sandbox, as by a restart of the machine
                runs, finished = [], 0.0
            elif exit_ := attempt.exit():
                finished = exit_["finished_at"]
                runs.append(finished - (attempt.run() or {}).get("started_at", finished))
        return finished + restart_delay(runs)

    def new_attempt(self) -> Attempt:
        number = self.attempts[-1].number + 1 if self.attempts else 0
        attempt = self._folder.attempt(self.name, number)
        (attempt.path / "tmp").mkdir(parents=True, exist_ok=True)
        (attempt.path / "tmp").chmod(0o1777)
        (attempt.path / "message").touch()
        return attempt

    def launch(self, attempt: Attempt, launch: runtime.Launch, on_exit: ExitWatch) -> None:
        """Start the attempt; `on_exit(attempt, shim)` registers for its exit."""
        process = runtime.start_container(attempt, launch)
        self.attempts.append(attempt)
        self.waiting = None
        self.create_failures = 0
        self.ready = not self.spec.get("readinessProbe")
        on_exit(attempt, process)
        attempt.run(wait_s=5.0)

    def postpone(self, reason: str, message: str, delay_s: float) -> None:
        """Report a failed creation as waiting; retry after `delay_s`."""
        self.waiting = (reason, message)
        self.create_failures += 1
        self.not_before = time.monotonic() + delay_s

    def terminate(self) -> None:
        """Send SIGTERM to the main process, once per attempt, across restarts of the agent."""
        attempt = self.running()
        if attempt and not attempt.marked("term"):
            attempt.mark("term")
            attempt.signal(signal.SIGTERM)

    def kill(self) -> None:
        attempt = self.running()
        if attempt:
            attempt.mark("killed")
            attempt.kill()

    def view(self, waiting: tuple[str, str] | None = None) -> ContainerView:
        """Return the state to report; `waiting`: default reason before the first start."""
        last = self.last
        exit_ = last.exit() if last else None
        run = last.run() if last else None
        state = _terminated_state(last, run, exit_) if last and exit_ else None
        restarting = state is not None and self.waiting is not None
        previous = state if restarting else self._previous()
        running = last is not None and exit_ is None
        return ContainerView(
            name=self.name,
            image=self.spec["image"],
            image_id=self.image_id or (self.spec["image"] if last else ""),
            container_id=last.container_id if last else "",
            waiting=self.waiting or waiting,
            running_since=_started_at(run) if running else None,
            terminated=None if restarting else state,
            last=previous,
            restarts=max(0, last.number) if last else 0,
            ready=(running and self.ready) or (self.init and self.exit_code() == 0),
            started=running,
            sidecar=self.sidecar,
            resources=self.spec.get("resources") or None,
        )

    def _previous(self) -> Json | None:
        if len(self.attempts) < 2:
            return None
        attempt = self.attempts[-2]
        exit_ = attempt.exit()
        return _terminated_state(attempt, attempt.run(), exit_) if exit_ else None


ExitWatch = Callable[[Attempt, subprocess.Popen[bytes]], None]


def _terminated_state(attempt: Attempt, run: Json | None, exit_: Json) -> Json:
    code, reason, message = classify_exit(
        exit_, killed=attempt.marked("killed"), stopped=attempt.marked("stopped")
    )
    return terminated(
        exit_code=code,
        started=float(run["started_at"] if run else exit_["finished_at"]),
        finished=exit_["finished_at"],
        container_id=attempt.container_id,
        reason=reason,
        message=message or _termination_message(attempt),
    )


def _started_at(run: Json | None) -> float:
    return float(run["started_at"]) if run else time.time()


def classify_exit(exit_: Json, killed: bool, stopped: bool) -> tuple[int, str, str]:
    """Return (exit code, reason, message) of an ended attempt from its shim's exit record.

    `killed`: the agent sent SIGKILL; `stopped`: the sandbox was stopped.
    """
    code = int(exit_["exit_code"])
    tail = str(exit_["tail"]).strip()
    if code == 1 and tail.startswith("bwrap: ") and "\n" not in tail:
        return 128, "StartError", f"failed to start container: {tail.removeprefix('bwrap: ')}"
    if code == 0:
        return 0, "Completed", ""
    if stopped:
        return code, "Error", "stopped with the sandbox"
    if exit_.get("lost"):
        return code, "Error", "the container's shim was killed"
    if code == EXIT_KILLED and not killed and exit_.get("oom_kills"):
        return code, "OOMKilled", ""
    return code, "Error", ""


def _termination_message(attempt: Attempt) -> str:
    try:
        with open(attempt.path / "message", "rb") as file:
            return file.read(MESSAGE_BYTES).decode(errors="replace")
    except OSError:
        return ""


def container_user(pod: Json, container: Json) -> tuple[int, int]:
    """Return (uid, gid) inside the container; on the host it is the sandbox's user."""
    merged = {**(pod["spec"].get("securityContext") or {})}
    merged.update(container.get("securityContext") or {})
    uid = merged.get("runAsUser")
    if uid is None:
        uid = 65532 if merged.get("runAsNonRoot") else 0
    return int(uid), int(merged.get("runAsGroup") or 0)
