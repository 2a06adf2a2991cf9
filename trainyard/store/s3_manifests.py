"""The manifest object that makes a checkpoint visible on S3, and who may write it.

    checkpoints/step-00000042/manifest.json

is missing (free), a mark of at most MARK_BYTES (closed), or a manifest (published). S3 has no rename
but conditional writes. A publisher reads the object, checks the fence, and writes only if the object
is unchanged. Before files that a manifest might name are removed, the step is closed: a delayed
manifest of a partitioned or paused process then fails its condition. Each mark is unique.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from trainyard.objects import ObjectExists, ObjectMissing, Objects
from trainyard.store.interface import folder_name
from trainyard.store.manifest import MANIFEST_FILE, CorruptCheckpoint, Manifest

MARK_BYTES: Final = 100
"""Every manifest is longer."""
_TURNS: Final = 10
"""Attempts, as others may change the object between reading and writing it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Content of a manifest object."""

    content: bytes
    etag: str | None
    """None if the object does not exist."""

    @property
    def published(self) -> bool:
        """Whether a reader sees a checkpoint."""
        return len(self.content) > MARK_BYTES

    def manifest(self, step: int) -> Manifest:
        """Parse the manifest of this step. Raises CorruptCheckpoint."""
        try:
            manifest = Manifest.from_json(self.content.decode())
        except UnicodeDecodeError as error:
            raise CorruptCheckpoint(f"{MANIFEST_FILE}: {error}") from None
        if manifest.step != step:
            raise CorruptCheckpoint(f"{MANIFEST_FILE}: is of step {manifest.step}, not {step}")
        return manifest


def manifest_name(step: int) -> str:
    return f"{folder_name(step)}/{MANIFEST_FILE}"


def read_entry(checkpoints: Objects, step: int) -> Entry:
    """Read the object. Raises ObjectError."""
    try:
        content, etag = checkpoints.read_tagged(manifest_name(step))
    except ObjectMissing:
        return Entry(content=b"", etag=None)
    return Entry(content=content, etag=etag)


def closing_mark(why: str) -> bytes:
    """Return a mark's content. A mark that was used before does not close a step again."""
    text = f"closed: {why}\n".encode()
    assert len(text) <= MARK_BYTES
    return text


def close_step(
    checkpoints: Objects, step: int, *, why: str | None = None, even_published: bool = False
) -> Entry:
    """Invalidate every publication of this step in progress; return the previous entry.

    A published step is left alone unless `even_published`. Ranks that close together pass the same
    `why`, and the first closes for all; None uses a unique one. Raises ObjectError.
    """
    text = closing_mark(why or uuid.uuid4().hex)
    for _ in range(_TURNS):
        entry = read_entry(checkpoints, step)
        if entry.content == text or (entry.published and not even_published):
            return entry
        try:
            checkpoints.create(manifest_name(step), text, instead_of=entry.etag)
        except (ObjectExists, ObjectMissing):
            continue
        return entry
    raise ObjectExists(
        f"{checkpoints.location.url(manifest_name(step))}: changed {_TURNS} times by other writers"
    )
