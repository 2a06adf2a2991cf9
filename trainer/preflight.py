"""Checks of a run that need neither torch nor other ranks: configuration, run record, datasets."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config import load, world_issues
from trainer.config.settings import TrainerConfig
from trainer.config_errors import ConfigError, config_error, within
from trainer.data.dataset import Corpus, combine_datasets, open_version
from trainer.data.local_cache import cache_version, latest_version
from trainer.data.windows import DatasetVersion
from trainer.lineage import read_run_record
from trainer.prepare.dataset import check_version, resolve_version
from trainyard.contract import CHECKPOINTS_DIR, LATEST
from trainyard.disk import fsync_folder
from trainyard.store.factory import open_store
from trainyard.store.interface import folder_name
from trainyard.store.manifest import CorruptCheckpoint, UnknownFormat
from trainyard.store.posix import WRITING, PosixStore


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A checked configuration with its datasets and run directory."""

    config: TrainerConfig
    record: dict[str, Any]
    """The platform's run record; empty when the trainer is used alone."""
    run_dir: Path
    corpus: Corpus
    """The dataset versions that this run reads."""
    continued: Path | None = None
    """Directory of the run that this one continues."""


def check_request(
    config_file: Path,
    assignments: Sequence[str],
    run_dir: Path,
    record_file: Path | None,
    continued: Path | None = None,
) -> RunRequest:
    """Load and check everything. Raises ConfigError or DatasetError.

    `continued`: the directory of a run whose checkpoints this one starts with.
    """
    config = load(config_file, assignments)
    record = read_run_record(record_file)
    if issues := world_issues(config, int(os.environ.get("WORLD_SIZE", "1"))):
        raise ConfigError(within(str(config_file), issues))
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise config_error(
            f"--run-dir: {run_dir}",
            str(error.strerror),
            "must be a folder that can be written",
            "correct it",
            "invalid-folder",
        ) from None
    if continued is not None and config.checkpoint.store is not None:
        raise config_error(
            "checkpoint.store",
            f"{config.checkpoint.store} with --continue-from",
            "must be null: a run whose checkpoints are there continues with the same store and more steps",
            "remove one of them",
            "conflict",
        )
    if continued is not None:
        continue_from(continued, run_dir)
    corpus = _open_corpus(config, _checkpoint_versions(run_dir, config.checkpoint.store))
    if not config.model.path and corpus.index.vocab_size > config.model.vocab_size:
        raise config_error(
            f"{config_file}: model.vocab_size",
            f"{config.model.vocab_size} is too small",
            f"must be at least {corpus.index.vocab_size}, the dataset's",
            "raise it",
            "out-of-range",
        )
    return RunRequest(
        config=config, record=record, run_dir=run_dir, corpus=corpus, continued=continued
    )


def _open_corpus(config: TrainerConfig, begun_with: dict[str, str]) -> Corpus:
    """Open and verify every dataset. Raises DatasetError."""
    data = config.data
    pairs = zip(data.paths(), data.versions(), strict=True)
    opened = [
        _open(config, path, _version_to_open(asked, path, begun_with)) for path, asked in pairs
    ]
    return combine_datasets(opened, data.weights(), data.paths())


def _open(config: TrainerConfig, path: str, version: str) -> DatasetVersion:
    full = config.data.verify == "full"
    if config.data.staging is None:
        return open_version(Path(path) / resolve_version(Path(path), version), full_check=full)
    found = latest_version(path) if version == LATEST else check_version(version)
    return cache_version(path, found, Path(config.data.staging), full_check=full)


def _version_to_open(asked: str, path: str, begun_with: dict[str, str]) -> str:
    """Return the configured version, else the one the run started with, else `latest`."""
    return asked if asked != LATEST else begun_with.get(path, LATEST)


def _checkpoint_versions(run_dir: Path, place: str | None) -> dict[str, str]:
    """Return dataset versions by path from the newest readable checkpoint; empty for a new run."""
    store = open_store(run_dir / CHECKPOINTS_DIR, place)
    for step in reversed(store.steps()):
        try:
            sources = store.manifest(step).trainer["metadata"]["data"]["sources"]
            return {source["path"]: source["version"] for source in sources}
        except (CorruptCheckpoint, UnknownFormat, KeyError):
            continue
    return {}


def continue_from(origin: Path, run_dir: Path) -> None:
    """Give a run without checkpoints those of the run in `origin`; a run that has some is left alone.

    Checkpoints are never changed after they were published, so links are enough: deleting one leaves the other.
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
        raise _no_origin(origin, f"cannot be linked: {error.strerror}") from None
    if not own.steps():
        raise _no_origin(origin, "has no checkpoint")
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


def _no_origin(origin: Path, problem: str) -> ConfigError:
    valid = "must be the directory of a run that has saved one"
    return config_error(f"--continue-from: {origin}", problem, valid, code="invalid-folder")
