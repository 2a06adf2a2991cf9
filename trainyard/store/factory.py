"""Create the store and the fence of a run from its settings: POSIX or S3."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from trainyard.contract import CHECKPOINTS_DIR
from trainyard.objects import Objects
from trainyard.objects.location import is_location
from trainyard.store import fence, s3_fence
from trainyard.store.fence import PosixFence
from trainyard.store.interface import CheckpointStore, Fence, parse_step
from trainyard.store.posix import PosixStore
from trainyard.store.s3 import S3Store
from trainyard.store.s3_fence import S3Fence


def open_store(folder: Path, store: str | None) -> CheckpointStore:
    """Return the store of a run: `store`, a location on S3, or the folder of its checkpoints."""
    return PosixStore(folder) if store is None else S3Store(_objects(store, os.getpid()))


def claim_attempt(run_dir: Path, store: str | None, number: int | None = None) -> Fence:
    """Claim an attempt number, which fences out every older attempt.

    None: the next one; on S3 it is also higher than those in the run directory, where a run may have started.
    Raises StaleAttempt for another `number` that is claimed, or not the highest.
    """
    if store is not None:
        above = fence.newest_attempt(run_dir)
        return S3Fence.claim(_objects(store, os.getpid()), above=above, number=number)
    return PosixFence.claim(run_dir, number)


def newest_attempt(run_dir: Path, store: str | None) -> int:
    """Return the highest number that is claimed; 0 for none. Raises OSError."""
    newest = fence.newest_attempt(run_dir)
    if store is not None:
        newest = max(newest, s3_fence.newest_attempt(_objects(store, os.getpid())))
    return newest


def join_attempt(run_dir: Path, store: str | None, attempt: int) -> Fence:
    if store is not None:
        return S3Fence(_objects(store, os.getpid()), attempt)
    return PosixFence(run_dir, attempt)


def find_checkpoints(text: str) -> tuple[CheckpointStore, list[int]]:
    """Return the store and steps of a run, its checkpoints folder or one of its step folders.

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
    """Cache one connection per process; a fork must not reuse its parent's."""
    return Objects.at(url)
