"""The program of a dev pod: keeps it until its time is over or nobody uses it, and warns in its terminals first.

It is passed to `python3 -c` in any image, so it uses the standard library only. A pod is in use while its user
types in a terminal, while a GPU computes, and while connections are forwarded (`trainyard dev port` touches
ACTIVITY). Exit code 0 in each case: the Job is then complete, and is not started again.
"""

import contextlib
import glob
import os
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

CHECK_S = 10.0
WARN_S = 600.0
"""How long before the end terminals are warned; at most a fifth of the time."""
ACTIVITY = "/tmp/.trainyard-activity"
SESSION_ENV = "TRAINYARD_SESSION"
"""Variable with the uid of the Job."""
REASON = "/dev/termination-log"
BUSY_PERCENT = 5.0
TERMINALS = "/dev/pts/[0-9]*"


class Stopped(Exception):
    """The pod was asked to end."""


class Session:
    """One dev pod. `seconds`: its time limit; `idle_s`: seconds of no use after which it ends, 0: never."""

    def __init__(self, seconds: float, idle_s: float, now: float) -> None:
        self.ends = now + seconds
        self.idle_s = idle_s
        self.active = now
        self.seconds = seconds
        self._warned = ""

    def step(self, now: float, active: float) -> tuple[str, str]:
        """Return (why the pod ends, or empty; a warning that is due, or empty). `active`: last activity."""
        self.active = max(self.active, active)
        left = self.ends - now
        if left <= 0:
            return f"time limit of {_span(self.seconds)} reached", ""
        idle_left = self.active + self.idle_s - now if self.idle_s else float("inf")
        if idle_left <= 0:
            return f"idle for {_span(self.idle_s)}", ""
        return "", self._warning(left, idle_left)

    def _warning(self, left: float, idle_left: float) -> str:
        """Return each warning once; the one about idleness again after new activity."""
        if left <= min(WARN_S, self.seconds / 5):
            kind, text = "limit", f"ends at its time limit in {_span(left)}; save your work"
        elif idle_left <= min(WARN_S, self.idle_s / 5):
            kind = f"idle since {self.active}"
            text = f"is idle and ends in {_span(idle_left)}; press a key to keep it"
        else:
            return ""
        if kind == self._warned:
            return ""
        self._warned = kind
        return f"this dev pod {text}; your home folder is kept"


def _span(seconds: float) -> str:
    if seconds >= 7200:
        return f"{seconds / 3600:.3g} hours"
    return f"{seconds / 60:.3g} minutes" if seconds >= 120 else f"{max(seconds, 1):.0f} seconds"


def last_activity() -> float:
    """Return when somebody last typed in a terminal, or a connection was forwarded (Unix time)."""
    found = 0.0
    for path in glob.glob(TERMINALS):
        with contextlib.suppress(OSError):
            # What this program writes to a terminal changes its mtime only.
            found = max(found, os.stat(path).st_atime)
    with contextlib.suppress(OSError):
        found = max(found, os.stat(ACTIVITY).st_mtime)
    return found


def gpu_percent() -> float:
    """Return the utilisation of the busiest GPU; 0 without GPUs."""
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return max((float(line) for line in answer.stdout.split()), default=0.0)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0.0


def tell(text: str) -> None:
    """Write a line to every terminal of the pod, and to its log."""
    print(text, flush=True)
    for path in glob.glob(TERMINALS):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                os.write(fd, f"\r\n*** {text} ***\r\n".encode())
            finally:
                os.close(fd)


def finish(why: str) -> None:
    """Say why the pod ends, where `trainyard dev list` finds it."""
    with contextlib.suppress(OSError), open(REASON, "w") as file:
        file.write(why)
    tell(f"this dev pod ends: {why}; your home folder is kept")


def first_start() -> bool:
    """Whether this session starts for the first time, which a file in the home folder remembers.

    Kueue queues a preempted Job again; nobody is there when it is admitted, so the session ends instead.
    """
    session = os.environ.get(SESSION_ENV)
    if not session:
        return True
    folder = os.path.join(os.environ.get("HOME", "/tmp"), ".trainyard", "sessions")
    os.makedirs(folder, exist_ok=True)
    try:
        os.close(os.open(os.path.join(folder, session), os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def _stop(number: int, frame: "FrameType | None") -> None:
    raise Stopped


def main(seconds: float, idle_s: float) -> int:
    """Wait for the end of the session. Return 0."""
    signal.signal(signal.SIGTERM, _stop)
    os.makedirs(os.environ.get("HOME", "/tmp"), mode=0o700, exist_ok=True)
    if not first_start():
        finish("preempted by a run")
        return 0
    session = Session(seconds, idle_s, time.time())
    tell("ready")
    why = "stopped, or preempted by a run"
    try:
        while True:
            now = time.time()
            active = now if idle_s and gpu_percent() >= BUSY_PERCENT else last_activity()
            ended, warning = session.step(now, active)
            if ended:
                why = ended
                break
            if warning:
                tell(warning)
            _reap()
            shortest = min(CHECK_S, idle_s / 5 if idle_s else CHECK_S, session.ends - now)
            time.sleep(max(0.1, shortest))
    except Stopped:
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    finish(why)
    return 0


def _reap() -> None:
    """Reap what shells left running when they ended: this is the first process of the pod."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), float(sys.argv[2])))
