"""Everything about a run that can be checked before torch is loaded and before any rank meets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.checkpoint.manifest import CorruptCheckpoint
from training.checkpoint.opening import open_store
from training.prepare.dataset import Index, resolve_version
from training.spec import LATEST
from training.trainer.config import TrainerConfig, load, world_mistakes
from training.trainer.data import open_dataset
from training.trainer.lineage import read_run_record
from training.trainer.strict import ConfigError


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for, checked as far as one rank can without the others."""

    config: TrainerConfig
    record: dict[str, Any]
    """The platform's run record; empty when the trainer is used alone."""
    run_dir: Path
    data_folder: Path
    """Of the dataset version that this run reads."""
    index: Index


def make_request(
    config_file: Path, assignments: Sequence[str], run_dir: Path, record_file: Path | None
) -> Request:
    """Read and check everything. Raises ConfigError or DatasetError."""
    config = load(config_file, assignments)
    record = read_run_record(record_file)
    mistakes = world_mistakes(config, int(os.environ.get("WORLD_SIZE", "1")))
    if mistakes:
        raise ConfigError([f"{config_file}: {mistake}" for mistake in mistakes])
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError([f"--run-dir: {run_dir}: {error.strerror}"]) from None
    path = Path(config.data.path)
    version = _version_to_open(config, path, run_dir)
    folder, index = open_dataset(path, version, full_check=config.data.verify == "full")
    if index.vocab_size > config.model.vocab_size:
        raise ConfigError(
            [
                f"{config_file}: model.vocab_size: got {config.model.vocab_size}; "
                f"allowed >= {index.vocab_size}, the dataset's"
            ]
        )
    return Request(config=config, record=record, run_dir=run_dir, data_folder=folder, index=index)


def _version_to_open(config: TrainerConfig, path: Path, run_dir: Path) -> str:
    """A named version, else the one that the run began with, else the newest."""
    if config.data.version != LATEST:
        return resolve_version(path, config.data.version)
    store = open_store(run_dir, None)
    for step in reversed(store.steps()):
        try:
            return str(store.manifest(step).data_cursor["version"])
        except (CorruptCheckpoint, KeyError):
            continue
    return resolve_version(path, LATEST)
