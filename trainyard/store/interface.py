"""Interface of checkpoint storage.

Every rank of an attempt has a store and writes its own files:

    every rank   upload = store.begin(step, attempt)
    every rank   record = upload.put(name, chunks)          for each of its files
    leader       upload.commit(manifest with all records, fence.check)
    any failure  upload.abort() on every rank

File names are unique over all ranks. An attempt writes a step at most once, so step and attempt
identify an upload without communication between ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from trainyard.store.manifest import FileRecord, Manifest

if TYPE_CHECKING:
    from typing import Self  # Python 3.11

Chunk = bytes | memoryview

_FOLDER = re.compile(r"step-([0-9]{8,})")


def folder_name(step: int) -> str:
    """`step-00000042`"""
    return f"step-{step:08d}"


def parse_step(name: str) -> int | None:
    """Return the step of a checkpoint folder's name; None for other names."""
    match = _FOLDER.fullmatch(name)
    step = int(match[1]) if match else None
    return step if step is not None and folder_name(step) == name else None


class StaleAttempt(Exception):
    """A newer attempt of this run exists: this one must not publish any more."""


class SaveFailed(OSError):
    """A checkpoint was not published because a rank failed; the one before it stays."""


class SaveUnfinished(SaveFailed):
    """A checkpoint was not complete in time; it may still become so."""


class Fence(Protocol):
    """One attempt's right to publish, which only the newest attempt of a run has."""

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""

    def check(self) -> None:
        """Raises StaleAttempt when a newer attempt has claimed the run; OSError when unknown."""


class Upload(Protocol):
    """One rank's upload of a checkpoint; invisible until `commit`."""

    def put(self, name: str, chunks: Sequence[Chunk]) -> FileRecord:
        """Write one file, the concatenation of `chunks`, durably. Thread-safe.

        Chunks are bytes or 1-D memoryviews of format B and are not changed. Returns their size and
        hash. Raises OSError.
        """

    def commit(self, manifest: Manifest, fence: Callable[[], None]) -> Manifest:
        """Publish atomically; called by the leader after all files.

        `fence` runs last and raises StaleAttempt. An existing good checkpoint of this step is kept
        instead, a corrupt one is set aside; returns the resulting manifest. Raises OSError; then
        nothing is visible.
        """

    def abort(self) -> None:
        """Remove the upload's files if possible; never raises. No effect after commit."""


class Source(Protocol):
    """A stored file, read sequentially and not verified."""

    def readinto(self, out: memoryview, /) -> int:
        """Read up to len(out) bytes; return the count, 0 at the end. Raises OSError."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class CheckpointStore(Protocol):
    """Atomic storage of a run's checkpoints, addressed by step. Thread-safe."""

    @property
    def place(self) -> str:
        """Folder or URL, for messages."""

    def manifest(self, step: int) -> Manifest:
        """Return the manifest. Raises CorruptCheckpoint."""

    def open(self, step: int, name: str) -> Source:
        """Open a file for sequential reading. Raises CorruptCheckpoint if it is missing."""

    def read(self, step: int, name: str) -> bytes:
        """Return a small file's content, verified. Raises CorruptCheckpoint."""

    def steps(self) -> list[int]:
        """Return steps with a complete checkpoint, ascending."""

    def verify(
        self,
        step: int,
        names: Collection[str] | None = None,
        progress: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Return one line per defect; empty if every file matches the manifest. Raises UnknownFormat.

        `names`: verify these files only; `progress`: called after each block, in any thread.
        """

    def begin(self, step: int, attempt: int) -> Upload:
        """Start this rank's upload of a checkpoint. Raises OSError."""

    def delete(self, step: int) -> None:
        """Hide a checkpoint, then remove its files. No error if it is missing."""

    def set_aside(self, step: int) -> None:
        """Hide a corrupt checkpoint; its files stay until `sweep`."""

    def sweep(self, before: int | None = None) -> None:
        """Remove files of unfinished writes and corrupt checkpoints.

        Called by the leader of a new attempt after its claim has fenced out all others; with its number as
        `before` also while it writes.
        """

    def mark_known_good(self, step: int) -> None:
        """Record that a start of the run has loaded this checkpoint completely. Raises OSError."""

    def last_known_good(self) -> int | None:
        """Return the marked step; None if no start has loaded a checkpoint."""
