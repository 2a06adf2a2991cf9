"""The manifest of a checkpoint."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Final

from trainyard.hashing import content_hash

FORMAT: Final = 2
MANIFEST_FILE: Final = "manifest.json"
_CHECKSUM: Final = "checksum"


class CorruptCheckpoint(Exception):
    """A checkpoint that does not match its manifest."""


class UnknownFormat(CorruptCheckpoint):
    """A valid manifest of a format that this trainer does not read."""


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """One file of a checkpoint."""

    bytes: int
    sha256: str

    def compare(self, name: str, size: int, sha256: str) -> None:
        """Raise CorruptCheckpoint when size or SHA-256 differ."""
        if size != self.bytes:
            raise CorruptCheckpoint(f"{name}: got {size} bytes; the manifest says {self.bytes}")
        if sha256 != self.sha256:
            raise CorruptCheckpoint(f"{name}: content differs from the manifest's SHA-256")


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
        """Total size of all files."""
        return sum(record.bytes for record in self.files.values())

    def with_files(self, files: dict[str, FileRecord]) -> Manifest:
        """Return a copy with these files."""
        return dataclasses.replace(self, files=files)

    def to_json(self) -> str:
        """Return the text of manifest.json, with a checksum over its other fields."""
        values = dataclasses.asdict(self)
        return json.dumps({**values, _CHECKSUM: content_hash(values)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Parse manifest.json. Raises CorruptCheckpoint."""
        try:
            values = json.loads(text)
            checksum = values.pop(_CHECKSUM)
            if content_hash(values) != checksum:
                raise CorruptCheckpoint("manifest does not match its own checksum")
            if values.get("format") != FORMAT:
                raise UnknownFormat(
                    f"manifest format: got {values.get('format')!r}; this trainer reads {FORMAT}"
                )
            files = {name: FileRecord(**record) for name, record in values.pop("files").items()}
            manifest = cls(files=files, **values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptCheckpoint(f"manifest is unreadable: {error}") from None
        if manifest.to_json() != text:
            raise CorruptCheckpoint("manifest is not as it was written")
        return manifest
