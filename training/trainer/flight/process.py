"""What a process can say of itself and of its neighbours on the node: frames, processor time, states."""

from __future__ import annotations

import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

from training.trainer.flight.ring import Identity, Mark, Phase, process_state, read_ring

_FRAMES: Final = 6
_PARTS: Final = 3
"""Last parts of a file's path that are shown."""
_STATES: Final = {
    "": "its process has ended",
    "Z": "its process has ended",
    "X": "its process has ended",
    "T": "its process is stopped (SIGSTOP)",
    "t": "its process is stopped by a debugger",
    "D": "its process waits in the kernel, for a disk, a network file system or a device",
    "R": "its process runs, but answers nothing",
    "S": "its process sleeps, and answers nothing",
}


def host_name() -> str:
    """Return the name of this host: in a pod, the pod's."""
    return socket.gethostname()


def main_thread_frames() -> tuple[str, ...]:
    """Return what the main thread executes, the innermost frame last; it is not stopped for that."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return _texts(traceback.walk_stack(frame)) if frame else ()


def frames_of(error: BaseException) -> tuple[str, ...]:
    """Return where an exception was raised, the innermost frame last."""
    found = list(_walk(error.__traceback__))
    return _texts(reversed(found))


def _walk(trace: TracebackType | None) -> Iterable[tuple[FrameType, int]]:
    while trace:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _texts(inner_first: Iterable[tuple[FrameType, int]]) -> tuple[str, ...]:
    found = []
    for frame, line in inner_first:
        code = frame.f_code
        found.append(frame_text(code.co_filename, line, code.co_qualname))
        if len(found) == _FRAMES:
            break
    return tuple(reversed(found))


def frame_text(file: str, line: int, function: str) -> str:
    """Return `FILE:LINE FUNCTION` with a short path."""
    return f"{'/'.join(Path(file).parts[-_PARTS:])}:{line} {function}"


def neighbour(ring: Path, stack: Path) -> str | None:
    """Return what this node shows of a process that does not answer; None for a process of another node."""
    try:
        identity, marks = read_ring(ring)
    except (OSError, ValueError, TypeError):
        return None
    parts = [_state(identity)]
    if marks:
        parts.append(_last(marks[-1]))
    if frame := dumped_frame(stack):
        parts.append(f"its main thread: {frame}")
    return "; ".join(parts)


def _state(identity: Identity) -> str:
    letter = process_state(identity)
    return f"{_STATES.get(letter, f'its process is in state {letter}')} (pid {identity.pid})"


def _last(mark: Mark) -> str:
    ago = (time.monotonic_ns() - mark.time_ns) / 1e9
    return f"in {Phase(mark.phase).text} of step {mark.step} for {ago:.0f} s"


def dumped_frame(stack: Path) -> str:
    """Return the innermost frame of the thread whose id is the file's first line, as faulthandler wrote it."""
    try:
        name, *lines = stack.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return ""
    for number, line in enumerate(lines[:-1]):
        if f"hread {name} " in line:
            place, _, function = lines[number + 1].strip().rpartition(" in ")
            file, _, at = place.removeprefix('File "').partition('", line ')
            return frame_text(file, int(at), function) if at.isdigit() else ""
    return ""
