"""From a run's settings to its store and its fence: the one place that knows every kind of store."""

from __future__ import annotations

from pathlib import Path

from training.checkpoint.fence import PosixFence
from training.checkpoint.posix import PosixStore
from training.checkpoint.store import CheckpointStore, Fence
from training.spec import CHECKPOINTS_DIR


def open_store(run_dir: Path, store: str | None) -> CheckpointStore:
    """The store of a run. `store` is the setting checkpoint.store; None: in the run directory."""
    return PosixStore(run_dir / CHECKPOINTS_DIR)


def claim_attempt(run_dir: Path, store: str | None) -> Fence:
    """Take the next attempt number; every older attempt is fenced out from here on."""
    return PosixFence.claim(run_dir)


def join_attempt(run_dir: Path, store: str | None, attempt: int) -> Fence:
    """The fence of an attempt that the leader has claimed."""
    return PosixFence(run_dir, attempt)
