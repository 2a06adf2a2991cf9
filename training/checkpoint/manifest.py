"""The record that makes a folder of shards a checkpoint."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Final

from training.spec import content_hash

FORMAT: Final = 2
MANIFEST_FILE: Final = "manifest.json"
_CHECKSUM: Final = "checksum"


class CorruptCheckpoint(Exception):
    """A checkpoint that is not what its manifest says; one line."""


class UnknownFormat(CorruptCheckpoint):
    """A manifest that is whole, and of another format than this program reads; one line."""


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """One file of a checkpoint."""

    bytes: int
    sha256: str

    def compare(self, name: str, size: int, sha256: str) -> None:
        """Raises CorruptCheckpoint when a file's content was found to be another."""
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
    """Unix seconds; for people, and to find the runs that saved last: no run decides anything by it."""
    world_size: int
    parallelism: dict[str, int]
    """Ranks per dimension; the product is the world size."""
    data_cursor: dict[str, Any]
    """Dataset, version, and samples used so far over all ranks."""
    run: dict[str, Any]
    """The run record as given by the platform, verbatim; empty when there was none."""
    trainer: dict[str, Any]
    """What the trainer itself knew: commit, hashes, seeds, versions, configuration."""
    files: dict[str, FileRecord] = dataclasses.field(default_factory=dict)
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        """Size of all shards."""
        return sum(record.bytes for record in self.files.values())

    def with_files(self, files: dict[str, FileRecord]) -> Manifest:
        """The same with the shards that were written."""
        return dataclasses.replace(self, files=files)

    def to_json(self) -> str:
        """The text of manifest.json, with a checksum over the rest of it."""
        values = dataclasses.asdict(self)
        return json.dumps({**values, _CHECKSUM: content_hash(values)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read manifest.json. Raises CorruptCheckpoint for anything but what `to_json` wrote."""
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
