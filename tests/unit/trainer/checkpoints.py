"""Checkpoints for tests that need no tensors."""

from __future__ import annotations

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
