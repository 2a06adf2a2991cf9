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

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

from trainyard.objects import ObjectError, ObjectMissing
from trainyard.store.manifest import Content, CorruptCheckpoint, FileRecord, Manifest, record_of

if TYPE_CHECKING:
    from typing import Self  # Python 3.11

Chunk = bytes | memoryview
BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Block to read and hash: small enough to stay in the CPU cache in between."""
_VERIFIERS: Final = 4
"""Maximum threads: each hashes about as fast as a disk reads."""

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


class CheckpointStore(ABC):
    """Atomic storage of a run's checkpoints, addressed by step. Thread-safe."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Folder or URL, for messages."""

    @abstractmethod
    def steps(self) -> list[int]:
        """Return steps with a complete checkpoint, ascending."""

    @abstractmethod
    def manifest(self, step: int) -> Manifest:
        """Return the manifest. Raises CorruptCheckpoint."""

    @abstractmethod
    def open(self, step: int, name: str) -> Source:
        """Open a file for sequential reading. Raises CorruptCheckpoint if it is missing."""

    @abstractmethod
    def begin(self, step: int, attempt: int) -> Upload:
        """Start this rank's upload of a checkpoint. Raises OSError."""

    @abstractmethod
    def delete(self, step: int) -> None:
        """Hide a checkpoint, then remove its files. No error if it is missing."""

    @abstractmethod
    def set_aside(self, step: int) -> None:
        """Hide a corrupt checkpoint; its files stay until `sweep`."""

    @abstractmethod
    def sweep(self, before: int | None = None) -> None:
        """Remove files of unfinished writes and corrupt checkpoints.

        Called by the leader of a new attempt after its claim has fenced out all others; with its number as
        `before` also while it writes.
        """

    @abstractmethod
    def mark_known_good(self, step: int) -> None:
        """Record that a start of the run has loaded this checkpoint completely. Raises OSError."""

    @abstractmethod
    def _known_good(self) -> bytes:
        """Return what `mark_known_good` has written. Raises OSError."""

    def _known_manifest(self, step: int) -> Manifest:
        """Return a manifest that may have been read before."""
        return self.manifest(step)

    def last_known_good(self) -> int | None:
        """Return the marked step; None if no start has loaded a checkpoint."""
        try:
            step = json.loads(self._known_good())["step"]
        except (FileNotFoundError, ObjectMissing, ValueError, KeyError, TypeError):
            return None
        return step if isinstance(step, int) else None

    def read(self, step: int, name: str) -> bytes:
        """Return a small file's content, verified. Raises CorruptCheckpoint."""
        record = self._known_manifest(step).files.get(name)
        if record is None:
            raise CorruptCheckpoint(f"{name}: not in the manifest")
        try:
            with self.open(step, name) as source:
                content = b"".join(map(bytes, _blocks(source, record.bytes)))
        except ObjectError:
            raise  # a bucket that does not answer is no damage
        except OSError as error:
            raise CorruptCheckpoint(f"{name}: {error.strerror}") from None
        record.compare(name, record_of(content, record.algorithm))
        return content

    def verify(
        self,
        step: int,
        names: Collection[str] | None = None,
        progress: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Return one line per missing, truncated or altered file, or for a bad manifest. Raises UnknownFormat.

        `names`: verify these files only; `progress`: called after each block, in any thread.
        """
        try:
            files = self.manifest(step).files
        except CorruptCheckpoint as error:
            return [str(error)]

        def mistake(name: str) -> str | None:
            try:
                self._verify_file(step, name, files[name], progress)
            except CorruptCheckpoint as error:
                return str(error)
            except ObjectError:
                raise
            except OSError as error:
                return f"{name}: {error.strerror}"
            return None

        threads = min(_VERIFIERS, len(os.sched_getaffinity(0)))
        with ThreadPoolExecutor(threads, "checkpoint-verifier") as pool:
            return [one for one in pool.map(mistake, files if names is None else names) if one]

    def _verify_file(
        self, step: int, name: str, record: FileRecord, progress: Callable[[], None]
    ) -> None:
        content = Content(record.algorithm)
        with self.open(step, name) as source:
            for block in _blocks(source, record.bytes):
                content.update(block)
                progress()
        record.compare(name, content.record())


def _blocks(source: Source, size: int) -> Iterator[memoryview]:
    """Yield all of a source, and so one that is longer than `size`, through one buffer."""
    block = memoryview(bytearray(min(BLOCK_BYTES, size + 1)))
    while got := source.readinto(block):
        yield block[:got]
