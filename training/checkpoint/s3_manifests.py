"""The one object that makes a checkpoint visible on S3, and who may write it.

    checkpoints/step-00000042/manifest.json

is not there (free), or a mark of at most MARK_BYTES (closed), or a manifest (published). S3 has no
rename, but writes on a condition. Whoever publishes reads the object first, asks the fence next,
and then writes only if the object is still what was read. Whoever removes files that a manifest
might name closes the step before: a manifest that is on its way for minutes, from a process that
was partitioned or paused, then finds its condition broken. Each mark differs from the one before.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from training.checkpoint.manifest import MANIFEST_FILE, CorruptCheckpoint, Manifest
from training.checkpoint.store import folder_name
from training.objects import ObjectExists, ObjectMissing, Objects

MARK_BYTES: Final = 100
"""Every manifest is longer."""
_TURNS: Final = 10
"""Others may change the object between reading and writing it, but not again and again."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is at the place of a manifest."""

    content: bytes
    etag: str | None
    """None: nothing is there."""

    @property
    def published(self) -> bool:
        """Whether a reader sees a checkpoint."""
        return len(self.content) > MARK_BYTES

    def manifest(self, step: int) -> Manifest:
        """Of this step. Raises CorruptCheckpoint."""
        try:
            manifest = Manifest.from_json(self.content.decode())
        except UnicodeDecodeError as error:
            raise CorruptCheckpoint(f"{MANIFEST_FILE}: {error}") from None
        if manifest.step != step:
            raise CorruptCheckpoint(f"{MANIFEST_FILE}: is of step {manifest.step}, not {step}")
        return manifest


def manifest_name(step: int) -> str:
    """The object's name below the checkpoints."""
    return f"{folder_name(step)}/{MANIFEST_FILE}"


def read_entry(checkpoints: Objects, step: int) -> Entry:
    """What is there now. Raises ObjectError."""
    try:
        content, etag = checkpoints.read_tagged(manifest_name(step))
    except ObjectMissing:
        return Entry(content=b"", etag=None)
    return Entry(content=content, etag=etag)


def closing_mark(why: str) -> bytes:
    """A mark's content. One that was made before closes nothing again."""
    text = f"closed: {why}\n".encode()
    assert len(text) <= MARK_BYTES
    return text


def close_step(
    checkpoints: Objects, step: int, *, why: str | None = None, even_published: bool = False
) -> Entry:
    """Let nobody publish this step who has looked before now; returns what was there.

    A published one is left alone, unless `even_published`. Ranks that close together give the
    same `why`, and the first closes for all; None makes one of its own. Raises ObjectError.
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
