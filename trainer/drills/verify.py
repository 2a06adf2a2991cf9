"""Verify a run's newest checkpoint: restore it to a scratch folder, or only its checksums if it is too large."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainer.drills.runs import Run
from trainyard.store.factory import find_checkpoints
from trainyard.store.interface import CheckpointStore, folder_name
from trainyard.store.manifest import CorruptCheckpoint, UnknownFormat

RESTORED: Final = "restored"
VERIFIED: Final = "verified"

_SCRATCH: Final = "drill"
_TRIES: Final = 3
"""Attempts with a newer checkpoint when a running run deletes the one being verified."""


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


class _Failed(Exception):
    """Cause and remedy of an unusable checkpoint."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.cause, self.remedy = cause, remedy


def verify_run(run: Run, largest: int, scratch: Path) -> Verdict | None:
    """Restore the run's newest checkpoint in a temporary folder of `scratch`.

    Above `largest` bytes only checksums are verified. Returns None if the run has no checkpoint any more.
    """
    verdict = None
    for _ in range(_TRIES):
        try:
            store, steps = find_checkpoints(run.place)
        except OSError as error:
            return _unreadable(run, error)
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
    except _Failed as error:
        cause, remedy = error.cause, error.remedy
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


_REACH: Final = "see that the volume or the bucket answers, and that its reader may read it"


def _restore(store: CheckpointStore, step: int, scratch: Path) -> None:
    # Late import: torch takes a second to load.
    from trainer.checkpoint.restore import RestoreError, run_drill

    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir(parents=True)
        run_drill(store, step, scratch)
    except RestoreError as error:
        raise _Failed(
            f"{folder_name(step)}: {error}", "compare the trainer's version with the run's"
        ) from None
    except OSError as error:
        if error.filename and str(error.filename).startswith(str(scratch)):
            raise _Failed(
                f"the scratch folder: {error.strerror}", "give the drill more scratch space"
            ) from None
        raise


def _unreadable(run: Run, error: OSError) -> Verdict:
    return Verdict(
        run=run.name,
        place=run.place,
        step=0,
        ok=False,
        how=VERIFIED,
        bytes=0,
        seconds=0.0,
        cause=f"cannot be read: {error}",
        remedy=_REACH,
    )
