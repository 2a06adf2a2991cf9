"""Checkpoints for tests that need no tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from trainer.checkpoint.contents import Progress
from trainyard.store import manifest
from trainyard.store.manifest import Manifest


def draft(step: int, loss: float | None = None) -> Manifest:
    """A manifest without files."""
    return Manifest(
        step=step,
        reason="interval",
        milestone=False,
        evaluation_loss=loss,
        attempt=1,
        saved_at=0.0,
        world_size=2,
        parallelism={"data": 2},
        data_cursor={"samples": step * 8},
        run={"run_id": "r-v1-00000000"},
        trainer={"seed": 0},
    )


def progress_of(step: int) -> Progress:
    """The position of a run after this step, in batches of four samples."""
    return Progress(
        step=step,
        samples=4 * step,
        windows=40,
        seed=1,
        evaluated_step=0,
        evaluation_loss=None,
        dataset_version="v1",
        model={},
        tokens={},
    )


@contextlib.contextmanager
def written_with(format_number: int) -> Iterator[None]:
    """Write manifests of this format."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "FORMAT", format_number)
        yield
