"""List runs with checkpoints, most recently saved first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from trainyard.contract import CHECKPOINTS_DIR
from trainyard.objects import Objects
from trainyard.objects.location import is_location
from trainyard.store.factory import find_checkpoints
from trainyard.store.interface import CheckpointStore
from trainyard.store.manifest import CorruptCheckpoint, UnknownFormat


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that has a checkpoint."""

    name: str
    """Name of its folder: the run's id."""
    place: str
    """Its folder or URL."""
    saved_at: float
    """Time of its last save in Unix seconds; infinite if unreadable."""


def newest_runs(root: str, count: int) -> list[Run]:
    """Return at most `count` runs below a folder or s3://BUCKET/PREFIX, most recently saved first.

    Unreadable runs and those with a corrupt newest manifest come first. Raises BadLocation or OSError.
    """
    found = [run for place in _folders(root) if (run := _run(place))]
    return sorted(found, key=lambda run: (-run.saved_at, run.name))[:count]


def _folders(root: str) -> Iterator[str]:
    if is_location(root):
        objects = Objects.at(root)
        yield from (objects.location.url(name) for name in objects.folders())
        return
    for entry in os.scandir(root):
        if entry.is_dir() and os.path.isdir(os.path.join(entry.path, CHECKPOINTS_DIR)):
            yield entry.path


def _run(place: str) -> Run | None:
    name = place.rstrip("/").rpartition("/")[2]
    try:
        store, steps = find_checkpoints(place)
        saved_at = _saved_at(store, steps[-1]) if steps else 0.0
    except OSError:
        # verify_run reports the reason.
        return Run(name=name, place=place, saved_at=float("inf"))
    return Run(name=name, place=place, saved_at=saved_at) if steps else None


def _saved_at(store: CheckpointStore, step: int) -> float:
    try:
        return store.manifest(step).saved_at
    except (CorruptCheckpoint, UnknownFormat):
        return float("inf")
