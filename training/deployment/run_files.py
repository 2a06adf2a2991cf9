"""Run files: what a researcher writes, checked against the platform, turned into RunSpecs.

A file holds one YAML document per version of the run. Adding a document adds a run and leaves the
others alone; an edited document is a new run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pydantic

from infra.config.checks.secrets import secrets_in
from infra.config.errors import (
    ConfigError,
    ConfigIssue,
    did_you_mean,
    from_pydantic,
    one_of,
    shown,
    within,
)
from infra.config.loader import read_yaml
from infra.config.types import SOURCE_SUFFIX
from infra.domain.platform import Platform
from training import source
from training.deployment import admission_checks, run_checks, scheduler_checks
from training.deployment.run_schema import RunFile
from training.spec import Dataset, RunSpec
from training.trainer import config as trainer_config
from training.trainer.strict import ConfigError as TrainerConfigError

RUNS_FOLDER: Final = "training/runs"
CONFIGS_FOLDER: Final = "training/configs"


def images(references: Mapping[str, str], root: Path) -> dict[str, str]:
    """The stack's images by name, every reference by digest."""
    digest = f"@sha256:{source.digest(root)}"
    return {
        name: reference.removesuffix(SOURCE_SUFFIX) + digest
        if reference.endswith(SOURCE_SUFFIX)
        else reference
        for name, reference in references.items()
    }


def load(
    listed: Sequence[str], platform: Platform | None, references: Mapping[str, str], root: Path
) -> list[RunSpec]:
    """Every run of the listed files (stems of training/runs, or paths from `root`).

    Raises ConfigError with every mistake of every file. Without a platform the files are checked by
    themselves, and no run comes back.
    """
    problems: list[ConfigIssue | str] = []
    runs: list[tuple[str, RunSpec]] = []
    for file in _files(listed, root, problems):
        shown_as = file.relative_to(root).as_posix() if file.is_relative_to(root) else str(file)
        try:
            documents = read_yaml(file, shown_as)
        except ConfigError as error:
            problems += error.issues
            continue
        for index, document in enumerate(documents):
            where = shown_as if len(documents) == 1 else f"{shown_as} document {index + 1}"
            run, found = _run(document, platform, references, root)
            problems += [
                *within(where, (m for m in found if isinstance(m, ConfigIssue))),
                *(f"{where}: {line}" for line in found if isinstance(line, str)),
            ]
            if run:
                runs.append((where, run))
    problems += _reused_versions(runs)
    problems += scheduler_checks.together(runs, platform) if platform else ()
    if problems:
        raise ConfigError(problems)
    return [run for _, run in runs]


def _files(listed: Sequence[str], root: Path, problems: list[ConfigIssue | str]) -> Iterator[Path]:
    known = {path.stem: path for path in sorted((root / RUNS_FOLDER).glob("*.yaml"))}
    for index, name in enumerate(listed):
        if name in listed[:index]:
            problems.append(
                ConfigIssue(
                    path=f"runs[{index}]",
                    problem=f"got {shown(name)}",
                    valid="allowed each file once",
                    action="remove it",
                )
            )
        elif name.endswith(".yaml") and name.isprintable():
            yield root / name
        elif name in known:
            yield known[name]
        else:
            problems.append(
                ConfigIssue(
                    path=f"runs[{index}]",
                    problem=f"got {shown(name)}",
                    valid=f"allowed {one_of(known)} (files of {RUNS_FOLDER}), or a path to a .yaml file",
                    action=did_you_mean(name, known, f"add {RUNS_FOLDER}/{name}.yaml"),
                )
            )


def _reused_versions(runs: Sequence[tuple[str, RunSpec]]) -> Iterator[ConfigIssue]:
    first: dict[tuple[str, int], str] = {}
    for where, run in runs:
        key = (run.name, run.version)
        if key in first:
            yield ConfigIssue(
                path=f"{where}: version",
                problem=f"got {run.version} of {shown(run.name)}, which {first[key]} has too",
                valid="allowed one run per name and version",
                action="raise the version",
            )
        first.setdefault(key, where)


def _run(
    document: Any, platform: Platform | None, references: Mapping[str, str], root: Path
) -> tuple[RunSpec | None, list[ConfigIssue | str]]:
    if not isinstance(document, dict):
        empty = ConfigIssue(
            path="",
            problem=f"got {shown(document)}",
            valid="allowed a run: name, version, ...",
            action="write one",
        )
        return None, [empty]
    problems: list[ConfigIssue | str] = list(secrets_in(document, ""))
    try:
        file = RunFile.model_validate(document)
    except pydantic.ValidationError as error:
        return None, [*from_pydantic(error, RunFile), *problems]
    if platform:
        problems += run_checks.unknown_names(file, platform, references)
        problems += scheduler_checks.unsuited(file, platform)
    known = not problems
    settings, found = _settings(file, root)
    problems += found
    if platform is None or not known:
        return None, problems
    problems += admission_checks.endpoint(settings)
    # Settings that cannot be read make no run; what else is wrong with it is told all the same.
    settings = {} if found else settings
    run = file.resolve(platform, references, settings, _dimensions(file, settings))
    problems += run_checks.misfits(file, run, platform)
    problems += scheduler_checks.zones(run, platform)
    return (None if problems else run), problems


def _settings(file: RunFile, root: Path) -> tuple[dict[str, Any], list[ConfigIssue | str]]:
    """The trainer's configuration with the run's overrides merged in, checked as it will be read."""
    folder = root / CONFIGS_FOLDER
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    path = root / file.config if file.config.endswith(".yaml") else known.get(file.config)
    if path is None:
        return {}, [
            ConfigIssue(
                path="config",
                problem=f"got {shown(file.config)}",
                valid=f"allowed {one_of(known)} (files of {CONFIGS_FOLDER})",
                action=did_you_mean(file.config, known, f"add {CONFIGS_FOLDER}/{file.config}.yaml"),
            )
        ]
    try:
        content = read_yaml(path, f"config: {file.config}")
    except ConfigError as error:
        return {}, list(error.issues)
    if len(content) != 1 or not isinstance(content[0], dict):
        return {}, [
            ConfigIssue(
                path=f"config: {file.config}",
                problem="got no mapping",
                valid="allowed the trainer's settings",
                action="correct the file",
            )
        ]
    merged = _merged(_merged(content[0], file.overrides), _checkpoint_override(file))
    merged = _merged(merged, _parallel_override(file))
    return merged, [*_read_elsewhere(file), *_trainer_mistakes(file, merged)]


def _read_elsewhere(file: RunFile) -> Iterator[ConfigIssue]:
    """Configurations name a place for their use without the platform; a run has its dataset."""
    data = file.overrides.get("data")
    if isinstance(data, Mapping) and "path" in data:
        yield ConfigIssue(
            path="overrides.data.path",
            problem="got " + shown(data["path"]),
            valid="allowed nothing: the run reads its dataset, wherever that is",
            action="name what it shall read in dataset, and remove this",
        )


def _checkpoint_override(file: RunFile) -> dict[str, Any]:
    """Naming one trigger switches the other off, unless it is named too."""
    named = file.checkpoint.model_dump()
    return {"checkpoint": named} if any(v is not None for v in named.values()) else {}


def _parallel_override(file: RunFile) -> dict[str, Any]:
    named = {k: v for k, v in file.parallelism.model_dump().items() if v is not None}
    return {"parallel": named} if named else {}


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(inner, value) if both and isinstance(inner, Mapping) else value
    return merged


def _trainer_config(file: RunFile, settings: Mapping[str, Any]) -> trainer_config.TrainerConfig:
    """As the run will read it. Raises ConfigError of the trainer."""
    data = {"data": {"path": Dataset(name=file.dataset.name).path}}
    return trainer_config.parse(_merged(settings, data), "config")


def _trainer_mistakes(file: RunFile, settings: Mapping[str, Any]) -> Iterator[str]:
    try:
        config = _trainer_config(file, settings)
    except TrainerConfigError as error:
        yield from error.mistakes
        return
    world_size = file.nodes * file.processes_per_node
    yield from (f"config: {m}" for m in trainer_config.world_mistakes(config, world_size))


def _dimensions(file: RunFile, settings: Mapping[str, Any]) -> dict[str, int]:
    """Ranks per dimension of a run that divides its model; empty where every rank has all of it."""
    world_size = file.nodes * file.processes_per_node
    try:
        parallel = _trainer_config(file, settings).parallel
    except TrainerConfigError:
        return {}  # told already
    if not parallel.fits(world_size) or parallel.layout(world_size).plain:
        return {}
    return parallel.layout(world_size).dimensions()
