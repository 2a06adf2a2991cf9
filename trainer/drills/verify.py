"""List runs, most recently saved first, and verify the newest checkpoint of each.

It is restored to a scratch folder; only its checksums are verified if it is too large.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainyard.contract import CHECKPOINTS_DIR
from trainyard.objects import Objects
from trainyard.objects.location import is_location
from trainyard.store.factory import find_checkpoints
from trainyard.store.interface import CheckpointStore, folder_name
from trainyard.store.manifest import CorruptCheckpoint, UnknownFormat

RESTORED: Final = "restored"
VERIFIED: Final = "verified"

_SCRATCH: Final = "drill"
_REACH: Final = "see that the volume or the bucket answers, and that its reader may read it"
_TRIES: Final = 3
"""Attempts with a newer checkpoint when a running run deletes the one being verified."""


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


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of a drill for one run."""

    run: str
    place: str
    step: int
    ok: bool
    how: str
    """`restored`: restored, read back, every tensor equal. `verified`: all checksums match; too large to
    restore."""
    bytes: int
    seconds: float
    cause: str = ""
    remedy: str = ""


class _Unusable(Exception):
    """A checkpoint that is not usable; its arguments are cause and remedy."""


def verify_run(run: Run, largest: int, scratch: Path) -> Verdict | None:
    """Restore the run's newest checkpoint in a temporary folder of `scratch`.

    Above `largest` bytes only checksums are verified. Returns None if the run has no checkpoint any more.
    """
    verdict = None
    for _ in range(_TRIES):
        try:
            store, steps = find_checkpoints(run.place)
        except OSError as error:
            return _failed(run, f"cannot be read: {error}")
        if not steps:
            return None
        verdict = _verdict(run, store, steps[-1], largest, scratch / _SCRATCH)
        if verdict.ok or steps[-1] in _steps(store):
            return verdict
    return verdict


def _steps(store: CheckpointStore) -> list[int]:
    try:
        return store.steps()
    except OSError:
        return []


def _verdict(run: Run, store: CheckpointStore, step: int, largest: int, scratch: Path) -> Verdict:
    begun = time.monotonic()
    how, size, cause, remedy = VERIFIED, 0, "", ""
    try:
        size = store.manifest(step).bytes
        if size <= largest:
            how = RESTORED
            _restore(store, step, scratch)
        elif issues := store.verify(step):
            raise CorruptCheckpoint(issues[0])
    except _Unusable as error:
        cause, remedy = error.args
    except CorruptCheckpoint as error:
        cause = f"{folder_name(step)} is corrupt: {error}"
        remedy = f"python -m trainer.checkpoint verify {run.place} names every damaged file"
    except UnknownFormat as error:
        cause, remedy = f"{folder_name(step)}: {error}", "use the image of the run for its drills"
    except OSError as error:
        cause, remedy = f"{folder_name(step)} cannot be read: {error}", _REACH
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Verdict(
        run=run.name,
        place=run.place,
        step=step,
        ok=not cause,
        how=how,
        bytes=size,
        seconds=round(time.monotonic() - begun, 3),
        cause=cause,
        remedy=remedy,
    )


def _restore(store: CheckpointStore, step: int, scratch: Path) -> None:
    # Late import: torch takes a second to load.
    from trainer.checkpoint.restore import RestoreError, run_drill

    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir(parents=True)
        run_drill(store, step, scratch)
    except RestoreError as error:
        raise _Unusable(
            f"{folder_name(step)}: {error}", "compare the trainer's version with the run's"
        ) from None
    except OSError as error:
        if error.filename and str(error.filename).startswith(str(scratch)):
            raise _Unusable(
                f"the scratch folder: {error.strerror}", "give the drill more scratch space"
            ) from None
        raise


def _failed(run: Run, cause: str) -> Verdict:
    return Verdict(
        run=run.name,
        place=run.place,
        step=0,
        ok=False,
        how=VERIFIED,
        bytes=0,
        seconds=0.0,
        cause=cause,
        remedy=_REACH,
    )
