"""What the trainer asks of a place that keeps checkpoints, whatever it is made of.

Every rank of an attempt has a store and writes its own files:

    every rank   upload = store.begin(step, attempt)
    every rank   record = upload.put(name, chunks)          for each of its files
    leader       upload.commit(manifest with all records, fence.check)
    any failure  upload.abort() on every rank

Names of files are unique over all ranks. A step is written at most once by an attempt, so its
number and the attempt's name an upload without a message between the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from training.checkpoint.manifest import FileRecord, Manifest

Chunk = bytes | memoryview

_FOLDER = re.compile(r"step-([0-9]{8,})")


def folder_name(step: int) -> str:
    """`step-00000042`"""
    return f"step-{step:08d}"


def parse_step(name: str) -> int | None:
    """The step of a checkpoint's folder; None for any other name."""
    match = _FOLDER.fullmatch(name)
    step = int(match[1]) if match else None
    return step if step is not None and folder_name(step) == name else None


class StaleAttempt(Exception):
    """A newer start of this run exists: this one must not publish anything any more."""


class Fence(Protocol):
    """One attempt's right to publish. Only the newest attempt of a run has it."""

    @property
    def attempt(self) -> int:
        """Its number, from 1."""

    def check(self) -> None:
        """Raises StaleAttempt when a newer attempt has claimed the run; OSError when unknown."""


class Upload(Protocol):
    """A checkpoint in the making, as one rank sees it; invisible until `commit`."""

    def put(self, name: str, chunks: Sequence[Chunk]) -> FileRecord:
        """Write one file, the concatenation of `chunks`, durably. Threads may call this at once.

        The chunks are not copied whole and not changed; they are bytes or 1-D memoryviews of
        format B. Returns size and SHA-256 of what was given. Raises OSError.
        """

    def commit(self, manifest: Manifest, fence: Callable[[], None]) -> Manifest:
        """Publish, in one step that happens or does not; the leader alone, after all files.

        `fence` runs last and raises StaleAttempt. A whole checkpoint of this step that is there
        already is kept instead, a corrupt one is set aside; returns the one that is there now.
        Raises OSError; then nothing has become visible.
        """

    def abort(self) -> None:
        """Remove what this upload left, as far as can be; never raises. No effect after commit."""


class Source(Protocol):
    """A stored file being read from its beginning, as its bytes are: not verified."""

    def readinto(self, out: memoryview, /) -> int:
        """Fill `out` (or less of it) with the next bytes; 0 at the end. Raises OSError."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class CheckpointStore(Protocol):
    """All-or-nothing storage of a run's checkpoints, addressed by step. Threads may share it."""

    @property
    def place(self) -> str:
        """Where it is, for people: a folder or a URL."""

    def steps(self) -> list[int]:
        """Steps that have a complete checkpoint, ascending."""

    def manifest(self, step: int) -> Manifest:
        """Raises CorruptCheckpoint."""

    def open(self, step: int, name: str) -> Source:
        """Read a file from its beginning. Raises CorruptCheckpoint when it is not there."""

    def read(self, step: int, name: str) -> bytes:
        """A small file's content, verified against the manifest. Raises CorruptCheckpoint."""

    def verify(self, step: int) -> list[str]:
        """One line per thing wrong with it; empty when every byte is as recorded."""

    def begin(self, step: int, attempt: int) -> Upload:
        """Take part in writing a checkpoint. Raises OSError."""

    def delete(self, step: int) -> None:
        """Make it invisible at once, then free its space. No error if it is not there."""

    def set_aside(self, step: int) -> None:
        """Take a corrupt checkpoint out of the list, keeping its bytes until `sweep`."""

    def sweep(self) -> None:
        """Remove what unfinished writes and corrupt checkpoints left behind.

        Called by the leader of a new attempt, once its claim has fenced all others out.
        """

    def mark_known_good(self, step: int) -> None:
        """Remember that a start of the run has loaded this one whole. Raises OSError."""

    def last_known_good(self) -> int | None:
        """The marked step; None when nothing was ever loaded from here."""
