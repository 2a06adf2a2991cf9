"""A snapshot in the memory of keepers, read as a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from training.peer_memory import inventory
from training.peer_memory.flush import MANIFEST_BASE
from training.peer_memory.inventory import Fetch, Part
from trainyard.store import hashes
from trainyard.store.manifest import CorruptCheckpoint, FileRecord, Manifest


@dataclass(frozen=True, kw_only=True)
class _InMemory(FileRecord):
    """A file of a snapshot: its size is known. Hashes are of what storage may change while nobody looks."""

    def compare(self, name: str, found: FileRecord) -> None:
        """Raise CorruptCheckpoint when the size differs."""
        if found.bytes != self.bytes:
            raise CorruptCheckpoint(f"{name}: got {found.bytes} bytes; the keeper has {self.bytes}")


class MemoryStore:
    """The reading half of a CheckpointStore, over the parts of one snapshot."""

    place = "peer memory"

    def __init__(self, parts: Sequence[Part], token: bytes) -> None:
        self._parts = {name: part for part in parts for name in part.files}
        self._token = token
        self.step = parts[0].stamp.step

    def manifest(self, step: int) -> Manifest:
        """Return the manifest with the files of all parts. Raises CorruptCheckpoint."""
        base = Manifest.from_json(self.read(step, MANIFEST_BASE).decode())
        unknown = f"{hashes.preferred()}:"
        files: dict[str, FileRecord] = {
            name: _InMemory(bytes=part.files[name][1], hash=unknown)
            for name, part in self._parts.items()
            if name != MANIFEST_BASE
        }
        return replace(base, files=files)

    def open(self, _step: int, name: str) -> Fetch:
        """Open a file for sequential reading. Raises CorruptCheckpoint."""
        try:
            return inventory.fetch(self._parts[name], name, self._token)
        except (OSError, KeyError) as error:
            raise CorruptCheckpoint(f"{name}: {error}") from None

    def read(self, step: int, name: str) -> bytes:
        """Return a small file's content. Raises CorruptCheckpoint."""
        with self.open(step, name) as source:
            content = bytearray(source.left)
            view = memoryview(content)
            try:
                while view and (got := source.readinto(view)):
                    view = view[got:]
            except OSError as error:
                raise CorruptCheckpoint(f"{name}: {error}") from None
        return bytes(content)
