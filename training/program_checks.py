"""Load the section `program` of a run file: its files, its source, and what contradicts the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from infra.domain import quantity
from infra.domain.platform import Platform
from infra.sections.errors import ConfigError, ConfigIssue, issue, shown
from infra.sections.yaml_files import read_yaml
from training import (
    accelerate_checks,
    command_checks,
    deepspeed_checks,
    placement,
    program_variables,
    source_archive,
)
from training.program import ACCELERATE_FILE, DEEPSPEED_FILE, Program, Source
from training.run_schema import ProgramSection, RunFile
from training.spec import NO_DATASET, RunSpec

_TRAINER_KEYS: Final = (
    *("config", "overrides", "parallelism", "checkpoint", "require", "continues"),
)
"""Keys of the built-in trainer."""
_SAVES: Final = (
    "remove it: a program decides when it saves to {checkpoints}, which the team's copies of results "
    "bring to a bucket"
)

_LAUNCHER_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "accelerate": ("accelerate",),
    "deepspeed": ("torchrun", "accelerate", "deepspeed"),
}
"""Launchers with which a key of `program` has a meaning."""


@dataclass
class _Loaded:
    """What a section refers to."""

    source: Source | None = None
    files: dict[str, str] = field(default_factory=dict)
    deepspeed: dict[str, Any] = field(default_factory=dict)


def required(file: RunFile) -> Iterator[ConfigIssue]:
    """Check the keys that the built-in trainer requires, and that a program must not have."""
    if file.program is None:
        if file.config is None:
            yield issue(
                "missing",
                "config",
                "missing",
                "must be the stem of a file in training/configs, unless program says what to run",
                "add it",
            )
        if file.dataset == NO_DATASET:
            yield issue(
                "missing", "dataset", "missing", "must be name, version and source", "add it"
            )
        return
    for key in _TRAINER_KEYS:
        if key in file.model_fields_set:
            saves = key == "checkpoint" or (key == "overrides" and "checkpoint" in file.overrides)
            yield issue(
                "trainer-setting",
                key,
                "is of the built-in trainer, which program replaces",
                "must be absent with program",
                _SAVES if saves else "remove it, or remove program",
            )


def load(file: RunFile, root: Path, image: str = "") -> tuple[Program | None, list[ConfigIssue]]:
    """Return the program of a run file and its issues; None without one or with issues.

    `image`: the run's, by reference; empty if it is not known.
    """
    section = file.program
    if section is None:
        return None, []
    found, problems = _Loaded(), list(program_variables.check(section))
    problems += _launcher(section, file)
    problems += _files(section, file, root, found)
    if section.source is not None:
        found.source, issues = source_archive.load(section.source, root)
        problems += issues
    problems += command_checks.check(section, root, found.source, image)
    if problems:
        return None, problems
    program = Program(
        launcher=section.launcher,
        command=section.command,
        env=dict(section.env),
        source=found.source,
        tracking_uri=section.tracking_uri or "",
        progress_timeout_s=section.progress_timeout_seconds,
        files=found.files,
    )
    return program, []


def check_on_platform(file: RunFile, run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    """Check what depends on nodes and secrets of the platform."""
    if run.program is None or file.program is None:
        return
    for name in run.secrets:
        for key in sorted(set(run.program.env) & set(platform.teams[run.team].secrets[name])):
            yield issue(
                "duplicate",
                f"program.env.{key}",
                f"is also set by secret {shown(name)}",
                "must be set once",
                "remove it",
            )
    pools = placement.eligible_pools(run, platform)
    text = run.program.files.get(DEEPSPEED_FILE)
    if text is not None and pools:
        values, _ = deepspeed_checks.parse(text, "")
        memory = quantity.bytes_(placement.pod_resources(run, pools).memory)
        path = f"program.deepspeed: {file.program.deepspeed}"
        yield from deepspeed_checks.check_memory(
            values, path, run.nodes, memory, file.program.model_parameters
        )


def _launcher(section: ProgramSection, file: RunFile) -> Iterator[ConfigIssue]:
    """The launcher against the number of ranks, and the object that runs the gang."""
    if section.launcher == "python" and file.nodes > 1:
        yield issue(
            "one-node-launcher",
            "program.launcher",
            f"python starts the ranks of one node, and the run has {file.nodes} nodes",
            "requires nodes: 1",
            "use torchrun, or one node",
        )
    if section.launcher == "mpirun" and file.job_kind != "mpijob" and file.nodes > 1:
        yield issue(
            "mpi-kind",
            "program.launcher",
            f"mpirun reaches other nodes by ssh, which pods of jobKind {file.job_kind} do not serve",
            "requires jobKind: mpijob, or one node",
            "set jobKind: mpijob",
        )
    if file.job_kind == "mpijob" and section.launcher != "mpirun":
        yield issue(
            "mpi-kind",
            "program.launcher",
            f"{section.launcher} does not start ranks on the workers of jobKind mpijob",
            "must be mpirun with jobKind: mpijob",
            "set launcher: mpirun, or jobKind: jobset",
        )
    for key, launchers in _LAUNCHER_KEYS.items():
        if getattr(section, key) is not None and section.launcher not in launchers:
            yield issue(
                "launcher-setting",
                f"program.{key}",
                f"has no meaning with launcher {section.launcher}",
                f"requires launcher {' or '.join(launchers)}",
                "remove it, or change the launcher",
            )


def _files(
    section: ProgramSection, file: RunFile, root: Path, found: _Loaded
) -> Iterator[ConfigIssue]:
    """Configuration files of launchers, read into `found`."""
    ranks = file.nodes * file.processes_per_node
    for key, name in (("deepspeed", DEEPSPEED_FILE), ("accelerate", ACCELERATE_FILE)):
        given = getattr(section, key)
        if given is None:
            continue
        path = f"program.{key}"
        place = root / given
        inside = place.resolve().is_relative_to(root.resolve())
        if PurePosixPath(given).is_absolute() or not inside or not place.is_file():
            yield issue(
                "missing-file",
                path,
                f"{shown(given)} is not a file of the repository",
                "must be a file, by its path from the top of the repository",
                "correct it",
            )
            continue
        try:
            found.files[name] = place.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            yield issue(
                "invalid-file",
                path,
                f"{given} cannot be read: {error}",
                "must be a text file",
                "correct it",
            )
            continue
        if key == "deepspeed":
            values, issues = deepspeed_checks.parse(found.files[name], f"{path}: {given}")
            yield from issues
            yield from deepspeed_checks.check(values, f"{path}: {given}", ranks)
        else:
            yield from _accelerate(place, f"{path}: {given}", file, root, found)


def _accelerate(
    place: Path, path: str, file: RunFile, root: Path, found: _Loaded
) -> Iterator[ConfigIssue]:
    """Accelerate's configuration against the run."""
    try:
        documents = read_yaml(place, path)
    except ConfigError as error:
        yield from (one for one in error.issues if isinstance(one, ConfigIssue))
        return
    values = documents[0] if len(documents) == 1 else None
    if not isinstance(values, dict):
        yield issue(
            "invalid-file",
            path,
            "is not one mapping",
            "must be Accelerate's configuration, as accelerate config writes it",
            "correct the file",
        )
        return
    ranks = file.nodes * file.processes_per_node
    yield from accelerate_checks.check(values, path, nodes=file.nodes, ranks=ranks)
    if file.program is not None:
        mounted = found.files.get(DEEPSPEED_FILE)
        yield from accelerate_checks.check_deepspeed(
            values, path, file.program, mounted, root, ranks
        )
