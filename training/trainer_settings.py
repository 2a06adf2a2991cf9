"""The trainer's configuration of a run: the named file with the run's overrides merged in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from infra.domain.platform import Platform
from infra.sections.errors import ConfigError, ConfigIssue, did_you_mean, issue, one_of, shown
from infra.sections.yaml_files import read_yaml
from trainer import config as trainer_config
from trainer import config_errors
from trainer.config import rules as trainer_rules
from trainer.config.settings import TrainerConfig
from training import advice, placement, weights
from training.run_schema import RunFile
from training.spec import Dataset, RunSpec
from trainyard.contract import SCRATCH_MOUNT

CONFIGS_FOLDER: Final = "training/configs"
WORKERS: Final = 8
"""Logical workers of the trainer's runs with groups, where `groups.workers` is not set."""


def load(file: RunFile, root: Path) -> tuple[dict[str, Any], list[ConfigIssue | str]]:
    """Return the trainer's configuration with the run's overrides merged in, and its issues."""
    assert file.config is not None
    folder = root / CONFIGS_FOLDER
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    path = root / file.config if file.config.endswith(".yaml") else known.get(file.config)
    if path is None:
        return {}, [
            issue(
                "unknown-name",
                "config",
                f"{shown(file.config)} does not exist",
                f"must be one of {one_of(known)} (files of {CONFIGS_FOLDER})",
                did_you_mean(file.config, known, f"add {CONFIGS_FOLDER}/{file.config}.yaml"),
            )
        ]
    try:
        content = read_yaml(path, f"config: {file.config}")
    except ConfigError as error:
        return {}, list(error.issues)
    if len(content) != 1 or not isinstance(content[0], dict):
        return {}, [
            issue(
                "invalid-file",
                f"config: {file.config}",
                "not one mapping",
                "must be a mapping of the trainer's settings",
                "correct the file",
            )
        ]
    merged = _merged(_merged(content[0], file.overrides), _checkpoint_override(file))
    merged = _merged(merged, _parallel_override(file))
    merged = _with_groups(merged, file)
    return merged, [
        *_read_elsewhere(file),
        *_staged_elsewhere(merged),
        *_continued_elsewhere(file, merged),
        *weights.check_reference(merged),
        *_issues(file, merged),
    ]


def _read_elsewhere(file: RunFile) -> Iterator[ConfigIssue]:
    """`data.path` is for use without the platform; a run reads its dataset."""
    data = file.overrides.get("data")
    if isinstance(data, Mapping) and "path" in data:
        yield issue(
            "platform-setting",
            "overrides.data.path",
            f"{shown(data['path'])} replaces the path of the run's dataset",
            "must be absent",
            "set dataset, and remove this",
        )


def _staged_elsewhere(settings: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """The root file system is read-only, and volumes of the team are what staging copies from."""
    data = settings.get("data")
    staging = data.get("staging") if isinstance(data, Mapping) else None
    if isinstance(staging, str) and not PurePosixPath(staging).is_relative_to(SCRATCH_MOUNT):
        yield issue(
            "not-local",
            "config: data.staging",
            f"{shown(staging)} is not on the node's local disk",
            f"must be {SCRATCH_MOUNT} or a folder in it",
            f"set data.staging: {SCRATCH_MOUNT}/datasets",
        )


def _continued_elsewhere(file: RunFile, settings: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """A run starts where another ended by links to its checkpoints, which S3 does not have."""
    checkpoint = settings.get("checkpoint")
    store = checkpoint.get("store") if isinstance(checkpoint, Mapping) else None
    if file.continues and store is not None:
        yield issue(
            "conflict",
            "continues",
            f"the run's checkpoints go to {shown(store)}",
            "requires checkpoints on the team's volume",
            "remove continues: a new version with the same checkpoint.store continues there",
        )


def _checkpoint_override(file: RunFile) -> dict[str, Any]:
    """Setting one interval switches the other off, unless both are set."""
    named = file.checkpoint.model_dump()
    export = named.pop("export")
    given = named if any(v is not None for v in named.values()) else {}
    given |= {} if export is None else {"export": export}
    return {"checkpoint": given} if given else {}


def _parallel_override(file: RunFile) -> dict[str, Any]:
    named = {k: v for k, v in file.parallelism.model_dump().items() if v is not None}
    return {"parallel": named} if named else {}


def _with_groups(settings: dict[str, Any], file: RunFile) -> dict[str, Any]:
    """Have the trainer of a run with groups divide its steps, by default over WORKERS logical workers."""
    if file.groups is None:
        return settings
    return _merged({"groups": {"workers": WORKERS}}, settings)


def _check_workers(file: RunFile, config: TrainerConfig) -> Iterator[ConfigIssue]:
    workers, groups = config.groups.workers, file.groups
    if workers and (groups is None or groups.max > workers):
        yield issue(
            "out-of-range" if groups else "conflict",
            "config: groups.workers",
            f"{workers} for {groups.max} groups" if groups else f"{workers} without groups",
            "must be at least groups.max of the run file, and absent without groups",
            "raise it" if groups else "remove it, or set groups in the run file",
        )


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(inner, value) if both and isinstance(inner, Mapping) else value
    return merged


def _parse(file: RunFile, settings: Mapping[str, Any]) -> TrainerConfig:
    """Return what the run will read. Raises ConfigError of trainer.config_errors."""
    data = {"data": {"path": Dataset(name=file.dataset.name).path}}
    folders, _ = weights.separate(settings)
    return trainer_config.parse(_merged(folders, data), "config")


def _issues(file: RunFile, settings: Mapping[str, Any]) -> list[ConfigIssue | str]:
    """What is wrong with the settings for the trainer and for the run's number of ranks."""
    try:
        config = _parse(file, settings)
    except config_errors.ConfigError as error:
        return [_converted(one) for one in error.issues]
    world_size = file.nodes * file.processes_per_node
    found = trainer_config.world_issues(config, world_size)
    within = config_errors.within("config", found)
    return [*_check_workers(file, config), *(_converted(one) for one in within)]


def _converted(issue: config_errors.ConfigIssue | str) -> ConfigIssue | str:
    return issue if isinstance(issue, str) else ConfigIssue(**dataclasses.asdict(issue))


def dimensions(file: RunFile, settings: Mapping[str, Any]) -> dict[str, int]:
    """Return ranks per dimension where the model is divided; empty where every rank has all of it."""
    world_size = file.nodes * file.processes_per_node
    try:
        parallel = _parse(file, settings).parallel
    except config_errors.ConfigError:
        return {}  # reported by `load`
    if not parallel.fits(world_size) or parallel.layout(world_size).plain:
        return {}
    return parallel.layout(world_size).dimensions()


def config_of(run: RunSpec) -> TrainerConfig:
    """Return the configuration of a run of the trainer."""
    return trainer_config.parse(_merged(run.config, {"data": {"path": run.dataset.path}}))


def config_warnings(run: RunSpec, platform: Platform) -> list[str]:
    """Return what may be a mistake in a run though it can work, one line each; the trainer logs its own part."""
    if run.program:
        return []
    found = config_of(run)
    pools = placement.eligible_pools(run, platform)
    lines = [*trainer_rules.warnings(found), *advice.interval_warnings(run, found, pools)]
    return [f"{run.run_id}: config: {line}" for line in lines]
