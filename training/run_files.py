"""Load run files: check them against the platform and resolve them to RunSpecs.

A file has one YAML document per version of the run. A new document is a new run and does not affect the others;
an edited document is a new run, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pydantic

from infra.domain.platform import Platform
from infra.sections.errors import (
    ConfigError,
    ConfigIssue,
    did_you_mean,
    from_pydantic,
    issue,
    one_of,
    shown,
    within,
)
from infra.sections.plaintext_secrets import secrets_in
from infra.sections.types import SOURCE_SUFFIX
from infra.sections.yaml_files import read_yaml
from training import (
    bucket_checks,
    capacity_checks,
    dataset_checks,
    group_checks,
    image_capabilities,
    name_checks,
    network_checks,
    program_checks,
    scheduler_checks,
    source,
    trainer_settings,
    weights,
)
from training.run_schema import RunFile
from training.spec import RunSpec

RUNS_FOLDER: Final = "training/runs"


def images(references: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return the stack's images by name, every reference by digest."""

    def pinned(reference: str) -> str:
        if not reference.endswith(SOURCE_SUFFIX):
            return reference
        repository = reference.removesuffix(SOURCE_SUFFIX)
        return f"{repository}@sha256:{source.digest(root, repository.rpartition('/')[2])}"

    return {name: pinned(reference) for name, reference in references.items()}


def load(
    listed: Sequence[str], platform: Platform | None, references: Mapping[str, str], root: Path
) -> list[RunSpec]:
    """Return every run of the listed files (stems of training/runs, or paths from `root`).

    Raises ConfigError with the issues of all files. Without a platform the files are checked by themselves, and
    no run is returned.
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
            run, found = resolve(document, platform, references, root)
            problems += [
                *within(where, (m for m in found if isinstance(m, ConfigIssue))),
                *(f"{where}: {line}" for line in found if isinstance(line, str)),
            ]
            if run:
                runs.append((where, run))
    problems += _reused_versions(runs)
    problems += scheduler_checks.check_quota_of_all(runs, platform) if platform else ()
    if problems:
        raise ConfigError(problems)
    return [run for _, run in runs]


def _files(listed: Sequence[str], root: Path, problems: list[ConfigIssue | str]) -> Iterator[Path]:
    known = {path.stem: path for path in sorted((root / RUNS_FOLDER).glob("*.yaml"))}
    for index, name in enumerate(listed):
        if name in listed[:index]:
            problems.append(
                issue(
                    "duplicate",
                    f"runs[{index}]",
                    f"{shown(name)} is listed twice",
                    "must list each file once",
                    "remove it",
                )
            )
        elif name.endswith(".yaml") and name.isprintable():
            yield root / name
        elif name in known:
            yield known[name]
        else:
            problems.append(
                issue(
                    "unknown-name",
                    f"runs[{index}]",
                    f"{shown(name)} does not exist",
                    f"must be one of {one_of(known)} (files of {RUNS_FOLDER}), or a path to a "
                    ".yaml file",
                    did_you_mean(name, known, f"add {RUNS_FOLDER}/{name}.yaml"),
                )
            )


def _reused_versions(runs: Sequence[tuple[str, RunSpec]]) -> Iterator[ConfigIssue]:
    first: dict[tuple[str, int], str] = {}
    for where, run in runs:
        key = (run.name, run.version)
        if key in first:
            yield issue(
                "duplicate",
                f"{where}: version",
                f"{run.version} of {shown(run.name)} is also in {first[key]}",
                "must be unique for a name",
                "raise the version",
            )
        first.setdefault(key, where)


def _sweep_issue() -> ConfigIssue:
    return issue(
        "sweep-in-stack",
        "sweep",
        "a stack does not deploy the runs of a sweep",
        "must be absent from files in a stack's runs",
        "remove the file from runs, and submit it with trainyard sweep run FILE",
    )


def resolve(
    document: Any, platform: Platform | None, references: Mapping[str, str], root: Path
) -> tuple[RunSpec | None, list[ConfigIssue | str]]:
    """Return the run of one document, or None and its issues; always None without a platform."""
    if not isinstance(document, dict):
        empty = issue(
            "wrong-type",
            "",
            f"{shown(document)} is not a mapping",
            "must be a run: name, version, ...",
            "correct it",
        )
        return None, [empty]
    problems: list[ConfigIssue | str] = list(secrets_in(document, ""))
    try:
        file = RunFile.read(document)
    except pydantic.ValidationError as error:
        return None, [*from_pydantic(error, RunFile), *problems]
    if file.sweep is not None:
        problems.append(_sweep_issue())
    if platform:
        problems += name_checks.check_names(file, platform, references)
        problems += scheduler_checks.check_scheduler_support(file, platform)
        problems += group_checks.check_support(file, platform)
    problems += program_checks.required(file)
    known = not problems
    program, issues = program_checks.load(file, root, references.get(file.image, ""))
    problems += issues
    settings, found = trainer_settings.load(file, root) if file.config else ({}, [])
    problems += [*found, *(dataset_checks.check_vocabulary(file, settings) if file.config else ())]
    if platform is None or not known:
        return None, problems
    problems += network_checks.check_report(settings, platform)
    problems += network_checks.check_program(file, platform)
    # Invalid settings are left out, so that other issues of the run are found, too.
    settings = {} if found else settings
    problems += weights.check_on_platform(settings, file.team, platform)
    problems += bucket_checks.check_settings(file, settings, platform)
    dimensions = trainer_settings.dimensions(file, settings) if file.config else {}
    run = file.resolve(platform, references, settings, dimensions, program)
    problems += capacity_checks.check_capacity(run, platform)
    problems += group_checks.check_capacity(run, platform)
    problems += network_checks.check_network(run, platform)
    problems += program_checks.check_on_platform(file, run, platform)
    problems += scheduler_checks.check_zones(run, platform)
    problems += image_capabilities.check_image(run, platform, root)
    return (None if problems else run), problems
