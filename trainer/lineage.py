"""Lineage of a checkpoint: run record, commit, configuration."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

from trainer.config.settings import TrainerConfig
from trainer.config_errors import ConfigError, ConfigIssue, issue
from trainyard.contract import LAUNCHER_EXIT_S, WORKER_EXIT_S
from trainyard.hashing import content_hash


def read_run_record(file: Path | None) -> dict[str, Any]:
    """Read the platform's run record; empty without a file. Raises ConfigError."""
    if file is None:
        return {}
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError([_invalid(file, str(error))]) from None
    if not isinstance(record, dict):
        raise ConfigError([_invalid(file, f"contains a {type(record).__name__}")])
    return record


def _invalid(file: Path, problem: str) -> ConfigIssue:
    return issue(str(file), problem, "must be a run record", "correct --run-record", "invalid-file")


def checkpoint_deadline_s(record: dict[str, Any], config: TrainerConfig) -> float:
    """Return seconds from a notice to a committed checkpoint: of the grace budget, else the config."""
    grace = record.get("grace")
    deadline = grace.get("checkpoint_deadline_s") if isinstance(grace, dict) else None
    return float(deadline) if deadline else config.checkpoint.deadline_s


def notice_seconds(record: dict[str, Any], config: TrainerConfig) -> float:
    """Return seconds from a notice to the end of the pod, as the library counts them."""
    return checkpoint_deadline_s(record, config) + WORKER_EXIT_S + LAUNCHER_EXIT_S


def describe(config: TrainerConfig, record: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint's metadata say about the code and the settings."""
    commit, dirty = record.get("git_commit"), record.get("dirty")
    if not commit:
        commit, dirty = _checkout()
    return {
        "git_commit": commit,
        "dirty": dirty,
        "hyperparameter_hash": content_hash(config.to_dict()),
        "config": config.to_dict(),
    }


@functools.cache
def _checkout() -> tuple[str, bool | None]:
    """Return the commit of this file's checkout, and whether files differ from it; `unknown` outside of one."""
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    return commit or "unknown", None if changes is None else bool(changes)


def _git(*words: str) -> str | None:
    """Return what git prints about this file's checkout; None if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *words],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
