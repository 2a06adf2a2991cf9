"""Start a run where another run ended: its checkpoints become those of this run, before anything is loaded.

Checkpoints are never changed after they were published, so links are enough: deleting one leaves the other.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from trainer.config_errors import ConfigError, ConfigIssue
from trainyard.contract import CHECKPOINTS_DIR
from trainyard.disk import fsync_folder
from trainyard.store.interface import folder_name
from trainyard.store.posix import WRITING, PosixStore


def continue_from(origin: Path, run_dir: Path) -> None:
    """Give a run without checkpoints those of the run in `origin`; a run that has some is left alone.

    Ranks call it at the same time, and one may be killed: each checkpoint appears complete, by one rename, the
    newest first. Raises ConfigError when `origin` has none.
    """
    own, others = PosixStore(run_dir / CHECKPOINTS_DIR), PosixStore(origin / CHECKPOINTS_DIR)
    if own.steps():
        return
    try:
        own.root.mkdir(parents=True, exist_ok=True)
        for step in reversed(others.steps()):
            _link(others.root / folder_name(step), own.root)
    except OSError as error:
        raise ConfigError([_issue(origin, f"cannot be linked: {error.strerror}")]) from None
    if not own.steps():
        raise ConfigError([_issue(origin, "has no checkpoint")])
    fsync_folder(own.root)


def _link(checkpoint: Path, into: Path) -> None:
    """Publish one checkpoint; nothing happens where another rank has, or where it was deleted meanwhile."""
    hidden = into / f"{WRITING}{checkpoint.name}-from-{uuid.uuid4().hex[:8]}"
    try:
        shutil.copytree(checkpoint, hidden, copy_function=_link_or_copy)
        fsync_folder(hidden)
        hidden.rename(into / checkpoint.name)
    except (OSError, shutil.Error):
        shutil.rmtree(hidden, ignore_errors=True)
        if checkpoint.exists() and not (into / checkpoint.name).exists():
            raise


def _link_or_copy(source: str, target: str) -> None:
    """Link a file; copy it where the file system has no links, or they cannot cross it."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def _issue(origin: Path, problem: str) -> ConfigIssue:
    return ConfigIssue(
        path=f"--continue-from: {origin}",
        problem=problem,
        valid="must be the directory of a run that has saved one",
        action="correct it",
        code="invalid-folder",
    )
