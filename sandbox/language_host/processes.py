"""Child processes of the language host, each in a separate process group, so that none is orphaned."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

TERM_SECONDS = 3.0
"""Time between SIGTERM and SIGKILL."""

CHUNK_BYTES = 64 * 1024

Chunk = tuple[Literal["stdout", "stderr"], bytes]


class ChildProcesses:
    """Starts processes and stops those still running when the host stops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        piped: bool,
    ) -> subprocess.Popen[bytes]:
        """Start a child; `piped`: capture its output, else it inherits the host's.

        Raises RuntimeError while the host is stopping, OSError when the command cannot start.
        """
        pipe = subprocess.PIPE if piped else None
        with self._lock:
            if self._stopped:
                raise RuntimeError("the language host is stopping")
            child = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )
            self._running.add(child)
        return child

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for a child and forget it. Negative exit codes are signals, as in subprocess."""
        code = child.wait()
        with self._lock:
            self._running.discard(child)
        return code

    def end(self, child: subprocess.Popen[bytes]) -> None:
        """Send SIGTERM to the child's group, and SIGKILL after `TERM_SECONDS`.

        An ended child is not signalled: its id may be reused.
        """
        if child.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(TERM_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            running = list(self._running)
        enders = [threading.Thread(target=self.end, args=(child,)) for child in running]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()


def stream_output(child: subprocess.Popen[bytes]) -> Iterator[Chunk]:
    """Yield the output of a piped child until it has closed both streams."""
    chunks: queue.Queue[Chunk | None] = queue.Queue()

    def pump(name: Literal["stdout", "stderr"], stream: IO[bytes]) -> None:
        with stream:
            while data := os.read(stream.fileno(), CHUNK_BYTES):
                chunks.put((name, data))
        chunks.put(None)

    assert child.stdout is not None and child.stderr is not None
    for arguments in (("stdout", child.stdout), ("stderr", child.stderr)):
        threading.Thread(target=pump, args=arguments, daemon=True).start()
    open_streams = 2
    while open_streams:
        chunk = chunks.get()
        if chunk is None:
            open_streams -= 1
        else:
            yield chunk
