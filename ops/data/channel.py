"""The client of ops/data/transfer.py: requests to a transfer pod over `kubectl exec`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from ops.cluster import ClusterError
from ops.data import transfer

BLOCK: Final = transfer.BLOCK
_END_S: Final = 10.0
_RUN_SOURCE: Final = (
    "import sys; s = sys.stdin.buffer; "
    "exec(compile(s.read(int(s.readline())), 'transfer', 'exec'), {'__name__': '__main__'})"
)
"""Runs the source that follows on its standard input: `exec` sends a command in a URL, which proxies cut."""


class RefusedError(ClusterError):
    """The pod refuses a request; the text says why."""


class LostError(ClusterError):
    """The connection has ended; the same command continues."""


@dataclass
class Channel:
    """A connection to the program that serves one folder of the volume."""

    requests: IO[bytes]
    answers: IO[bytes]
    errors: IO[bytes]
    """What kubectl says."""

    def ask(self, op: str, path: str = "", **more: Any) -> dict[str, Any]:
        """Send a request without a body; return its answer. Raises RefusedError, LostError."""
        self.send({"op": op, "path": path, **more})
        return self.answer()

    def send(self, request: dict[str, Any]) -> None:
        """Send the line of a request; its body, if any, follows with `write`."""
        self.write(json.dumps(request).encode() + b"\n")
        self.flush()

    def write(self, block: bytes) -> None:
        try:
            self.requests.write(block)
        except (BrokenPipeError, ValueError):
            raise self._lost() from None

    def flush(self) -> None:
        try:
            self.requests.flush()
        except (BrokenPipeError, ValueError):
            raise self._lost() from None

    def answer(self) -> dict[str, Any]:
        line = self.answers.readline()
        if not line:
            raise self._lost()
        try:
            found: dict[str, Any] = json.loads(line)
        except ValueError:
            raise LostError(f"transfer pod: not an answer: {line[:200]!r}") from None
        if "error" in found:
            raise RefusedError(str(found["error"]))
        return found

    def body(self, length: int) -> Iterator[bytes]:
        """Return the bytes that follow an answer, in blocks."""
        while length:
            block = self.answers.read(min(length, BLOCK))
            if not block:
                raise self._lost()
            length -= len(block)
            yield block

    def _lost(self) -> LostError:
        self.errors.seek(0)
        said = " ".join(self.errors.read().decode(errors="replace").split())[-300:]
        why = f": {said}" if said else ""
        return LostError(
            f"transfer pod: the connection ended{why}; what arrived is kept; run the same command again"
        )


@contextlib.contextmanager
def connect(command: Sequence[str], root: str) -> Iterator[Channel]:
    """Run the program for a folder; `command`: what comes before it, such as `kubectl exec -i POD --`."""
    code = Path(transfer.__file__).read_bytes()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*command, "python3", "-c", _RUN_SOURCE, root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            # If it has ended already, the first request says why.
            with contextlib.suppress(OSError):
                process.stdin.write(b"%d\n" % len(code) + code)
                process.stdin.flush()
            yield Channel(requests=process.stdin, answers=process.stdout, errors=errors)
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.stdout.close()
            # The program ends by itself once it has kept what arrived.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
            process.terminate()
            process.wait()
