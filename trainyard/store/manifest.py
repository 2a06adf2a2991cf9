"""The manifest of a checkpoint, and the hashes of its files, written as `ALGORITHM:HEX`.

BLAKE3 where the Python package `blake3` is installed: on current processors it takes a third of SHA-256's time
or less. Otherwise SHA-256, which every Python has. A manifest names the algorithm of each file, so that both
are read; a reader without the package cannot verify BLAKE3, and says so.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from trainyard.hashing import content_hash

FORMAT: Final = 3
MANIFEST_FILE: Final = "manifest.json"
_CHECKSUM: Final = "checksum"


class CorruptCheckpoint(Exception):
    """A checkpoint that does not match its manifest."""


class UnknownFormat(Exception):
    """A checkpoint that this installation cannot read or verify: a later format, or a missing library."""


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    bytes: int
    hash: str
    """`ALGORITHM:HEX`."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if ":" not in self.hash:
            raise ValueError(f"hash: got {self.hash!r}; must be ALGORITHM:HEX")

    @property
    def algorithm(self) -> str:
        """Name of the hash, for `Content`."""
        return self.hash.partition(":")[0]

    def compare(self, name: str, found: FileRecord) -> None:
        """Raise CorruptCheckpoint when a file differs in size or hash."""
        if found.bytes != self.bytes:
            raise CorruptCheckpoint(
                f"{name}: got {found.bytes} bytes; the manifest says {self.bytes}"
            )
        if found.hash != self.hash:
            raise CorruptCheckpoint(f"{name}: content differs from the manifest's hash")


class Content:
    """Size and hash of content that passes by in blocks."""

    def __init__(self, algorithm: str | None = None) -> None:
        """Default: the algorithm for new files. Raises UnknownFormat when it cannot be computed."""
        self._algorithm = algorithm or preferred()
        self._hasher = new_hasher(self._algorithm)
        self.bytes = 0

    def update(self, block: bytes | memoryview) -> None:
        """Add a block: bytes or a 1-D memoryview of format B."""
        self._hasher.update(block)
        self.bytes += len(block)

    def record(self) -> FileRecord:
        return FileRecord(bytes=self.bytes, hash=f"{self._algorithm}:{self._hasher.hexdigest()}")


def record_of(content: bytes, algorithm: str | None = None) -> FileRecord:
    """Return the record of a file with this content. Raises UnknownFormat."""
    whole = Content(algorithm)
    whole.update(content)
    return whole.record()


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a checkpoint except its tensors."""

    step: int
    """Optimizer steps completed."""
    reason: str
    """Why it was written: interval, time, milestone, notice or end."""
    milestone: bool
    """Whether it is never deleted."""
    evaluation_loss: float | None
    """Held-out loss at this step, nats per token; None when none was measured here."""
    attempt: int
    """Which start of the run wrote it."""
    saved_at: float
    """Unix seconds, for display and for finding recently saved runs only."""
    world_size: int
    parallelism: dict[str, int]
    """Ranks per dimension; the product is the world size."""
    data_cursor: dict[str, Any]
    """Dataset, version, and samples used so far over all ranks."""
    run: dict[str, Any]
    """The platform's run record, verbatim; empty without one."""
    trainer: dict[str, Any]
    """Recorded by the trainer: commit, hashes, seeds, versions, configuration."""
    files: dict[str, FileRecord] = dataclasses.field(default_factory=dict)
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        return sum(record.bytes for record in self.files.values())

    def with_files(self, files: dict[str, FileRecord]) -> Manifest:
        """Return a copy with these files, in the format that is written."""
        return dataclasses.replace(self, files=files, format=FORMAT)

    def to_json(self) -> str:
        """Return the text of manifest.json, with a checksum over its other fields."""
        values = dataclasses.asdict(self)
        return json.dumps({**values, _CHECKSUM: content_hash(values)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Parse manifest.json. Raises CorruptCheckpoint, UnknownFormat."""
        try:
            values = json.loads(text)
            checksum = values.pop(_CHECKSUM)
            if content_hash(values) != checksum:
                raise CorruptCheckpoint("manifest does not match its own checksum")
            if values.get("format") != FORMAT:
                found = values.get("format")
                raise UnknownFormat(f"manifest format: got {found!r}; this release reads {FORMAT}")
            files = {name: FileRecord(**record) for name, record in values.pop("files").items()}
            manifest = cls(files=files, **values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptCheckpoint(f"manifest is unreadable: {error}") from None
        if manifest.to_json() != text:
            raise CorruptCheckpoint("manifest is not as it was written")
        return manifest


SHA256: Final = "sha256"
BLAKE3: Final = "blake3"
ALGORITHMS: Final = (BLAKE3, SHA256)


class Hasher(Protocol):
    """A running hash, as in hashlib. Releases the interpreter's lock during an update."""

    def update(self, block: Any, /) -> object:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the hash of all bytes so far."""


@functools.cache
def _blake3() -> Callable[[], Hasher] | None:
    try:
        from blake3 import blake3
    except ImportError:
        return None
    made: Callable[[], Hasher] = blake3
    return made


def preferred() -> str:
    return SHA256 if _blake3() is None else BLAKE3


def new_hasher(algorithm: str) -> Hasher:
    """Return a hasher without content. Raises UnknownFormat."""
    if algorithm == SHA256:
        return hashlib.sha256()
    if algorithm != BLAKE3:
        raise UnknownFormat(
            f"hash {algorithm!r}: not known; must be one of {', '.join(ALGORITHMS)}"
        )
    make = _blake3()
    if make is None:
        raise UnknownFormat("hash blake3: needs the Python package blake3; install it to verify")
    return make()
