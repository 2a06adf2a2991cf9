"""Deletes what the policy does not keep, once a new checkpoint is safe."""

from __future__ import annotations

from training.checkpoint import policy
from training.checkpoint.manifest import CorruptCheckpoint, Manifest
from training.checkpoint.store import CheckpointStore


def retain(store: CheckpointStore, keep_latest: int) -> None:
    """Delete every readable checkpoint that is not to be kept, oldest first. Raises OSError."""
    manifests: list[Manifest] = []
    for step in store.steps():
        try:
            manifests.append(store.manifest(step))
        except CorruptCheckpoint:
            continue
    good = store.last_known_good()
    for step in policy.to_delete(manifests, keep_latest=keep_latest, last_known_good=good):
        store.delete(step)
