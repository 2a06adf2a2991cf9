"""What the trainer asks of a place that keeps checkpoints, whatever it is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from training.checkpoint.manifest import Manifest

Chunk = bytes | memoryview

_FOLDER = re.compile(r"step-([0-9]{8,})")


def folder_name(step: int) -> str:
    """`step-00000042`"""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """The step of a checkpoint's folder; None for any other name."""
    match = _FOLDER.fullmatch(name)
    step = int(match[1]) if match else None
    return step if step is not None and folder_name(step) == name else None


@dataclass(frozen=True, kw_only=True)
class Payload:
    """One shard to be written: the concatenation of `chunks`, which the store does not copy."""

    name: str
    chunks: Sequence[Chunk] = field(repr=False)


class StaleAttempt(Exception):
    """A newer start of this run exists: this one must not publish anything any more."""


class CheckpointStore(Protocol):
    """All-or-nothing storage of checkpoints, addressed by step."""

    def steps(self) -> list[int]:
        """Steps that have a complete checkpoint, ascending."""

    def manifest(self, step: int) -> Manifest:
        """Raises CorruptCheckpoint."""

    def read(self, step: int, name: str) -> bytes:
        """A shard's content, verified. Raises CorruptCheckpoint."""

    def verify(self, step: int) -> list[str]:
        """One line per thing wrong with it; empty when every byte is as recorded."""

    def write(
        self, manifest: Manifest, payloads: Sequence[Payload], fence: Callable[[], None]
    ) -> Manifest:
        """Publish a checkpoint, shards first; `fence` runs last and raises StaleAttempt.

        Returns the manifest with its files. Raises OSError; then nothing is visible.
        """

    def delete(self, step: int) -> None:
        """Make it invisible at once, then free its space. No error if it is not there."""

    def set_aside(self, step: int) -> None:
        """Take a corrupt checkpoint out of the list, keeping its bytes until `sweep`."""

    def sweep(self) -> None:
        """Remove what unfinished writes and corrupt checkpoints left behind."""
