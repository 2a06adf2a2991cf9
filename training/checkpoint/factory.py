"""From a run's settings to its store and its fence: the one place that knows every kind of store."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from training.checkpoint.fence import PosixFence, newest_attempt
from training.checkpoint.posix import PosixStore
from training.checkpoint.s3 import S3Store
from training.checkpoint.s3_fence import S3Fence
from training.checkpoint.store import CheckpointStore, Fence, parse_step
from training.objects import Objects
from training.objects.location import is_location
from training.spec import CHECKPOINTS_DIR


def open_store(run_dir: Path, store: str | None) -> CheckpointStore:
    """The store of a run. `store` is the setting checkpoint.store; None: in the run directory."""
    if store is not None:
        return S3Store(_objects(store, os.getpid()))
    return PosixStore(run_dir / CHECKPOINTS_DIR)


def claim_attempt(run_dir: Path, store: str | None) -> Fence:
    """Take the next attempt number; every older attempt is fenced out from here on.

    On S3, too, it is higher than those that the run directory knows: a run may have begun there.
    """
    if store is not None:
        return S3Fence.claim(_objects(store, os.getpid()), above=newest_attempt(run_dir))
    return PosixFence.claim(run_dir)


def join_attempt(run_dir: Path, store: str | None, attempt: int) -> Fence:
    """The fence of an attempt that the leader has claimed."""
    if store is not None:
        return S3Fence(_objects(store, os.getpid()), attempt)
    return PosixFence(run_dir, attempt)


def find_checkpoints(text: str) -> tuple[CheckpointStore, list[int]]:
    """The store and the steps that somebody means who names a run, its checkpoints, or one of them.

    `text` is a folder or s3://BUCKET/PREFIX. Raises BadLocation or OSError.
    """
    if is_location(text):
        return _find_on_s3(text)
    folder = Path(text)
    inner = folder / CHECKPOINTS_DIR
    step = parse_step(folder.resolve().name)
    if step is not None:
        store = PosixStore(folder.resolve().parent)
        return store, [step] if step in store.steps() else []
    store = PosixStore(inner if inner.is_dir() else folder)
    return store, store.steps()


def _find_on_s3(text: str) -> tuple[CheckpointStore, list[int]]:
    url = text.removesuffix("/")
    head, _, last = url.rpartition("/")
    step = parse_step(last)
    run = (head if step is not None else url).removesuffix(f"/{CHECKPOINTS_DIR}")
    store = S3Store(Objects.at(run))
    steps = store.steps()
    return store, steps if step is None else [step] if step in steps else []


@functools.cache
def _objects(url: str, process: int) -> Objects:
    """One connection for all of a process, and none that a process has from before its fork."""
    return Objects.at(url)
