"""Check Accelerate's configuration: against the run, and for what only another platform can run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from infra.sections.errors import ConfigIssue, issue, shown
from training import deepspeed_checks, source_archive
from training.program import DEEPSPEED_FILE
from training.run_schema import ProgramSection
from trainyard.contract import CONFIG_MOUNT

_LOCAL: Final = "LOCAL_MACHINE"
_DERIVED: Final = (
    *("machine_rank", "main_process_ip", "main_process_port", "rdzv_backend"),
    *("gpu_ids", "same_network", "deepspeed_hostfile", "deepspeed_multinode_launcher"),
    "mpirun_config",
)
"""Keys that the platform sets."""
_TYPES: Final = ("NO", "MULTI_CPU", "MULTI_GPU", "DEEPSPEED", "FSDP", "MEGATRON_LM")
"""Types for GPUs and CPUs; the others are of other hardware."""
_PRECISIONS: Final = ("fp16", "bf16")
MOUNTED: Final = f"{CONFIG_MOUNT}/{DEEPSPEED_FILE}"
"""Place of the file that `program.deepspeed` names."""


def check(
    values: Mapping[str, Any],
    path: str,
    *,
    nodes: int,
    ranks: int,
) -> Iterator[ConfigIssue]:
    """Check the file by itself and against the number of nodes and ranks."""
    environment = values.get("compute_environment", _LOCAL)
    if environment != _LOCAL:
        yield issue(
            "other-platform",
            f"{path}: compute_environment",
            f"{shown(environment)} is another platform, which Accelerate would submit the run to",
            f"must be {_LOCAL}",
            "write the configuration again with accelerate config, for this machine",
        )
        return
    for key, value in {"num_processes": ranks, "num_machines": nodes}.items():
        if key in values and values[key] != value:
            yield issue(
                "world-size",
                f"{path}: {key}",
                f"{shown(values[key])} contradicts nodes and gpusPerNode of the run",
                f"must be {value}",
                "remove it: the platform derives it",
            )
    nested = _mapping(values.get("deepspeed_config"))
    for key in _DERIVED:
        if key in values or (key in nested and nested[key] != "standard"):
            where = key if key in values else f"deepspeed_config.{key}"
            yield issue(
                "platform-setting",
                f"{path}: {where}",
                "is set by the platform",
                "must be absent",
                "remove it",
            )
    kind = values.get("distributed_type")
    if kind == "NO" and ranks > 1:
        yield issue(
            "world-size",
            f"{path}: distributed_type",
            f"'NO' means one process, and the run has {ranks} ranks",
            "must be a distributed type such as MULTI_GPU or FSDP",
            "correct it, or remove it",
        )
    elif kind is not None and kind not in _TYPES:
        yield issue(
            "other-platform",
            f"{path}: distributed_type",
            f"{shown(kind)} is not a type for GPUs",
            f"must be one of {', '.join(_TYPES)}",
            "correct it",
        )


def check_deepspeed(
    values: Mapping[str, Any],
    path: str,
    section: ProgramSection,
    mounted: str | None,
    root: Path,
    ranks: int,
) -> Iterator[ConfigIssue]:
    """Check the DeepSpeed configuration that Accelerate's names, and its precision against Accelerate's.

    `mounted`: the text of the file that `program.deepspeed` names.
    """
    nested = _mapping(values.get("deepspeed_config"))
    given = nested.get("deepspeed_config_file")
    settings: Mapping[str, Any] = {}
    if isinstance(given, str) and given not in ("", "none"):
        where = f"{path}: deepspeed_config.deepspeed_config_file"
        text = mounted if given == MOUNTED else _packed(given, section, root)
        outside = PurePosixPath(given).is_absolute() and given != MOUNTED
        if text is not None:
            settings, issues = deepspeed_checks.parse(text, f"{where}: {given}")
            yield from issues
            if given != MOUNTED:
                yield from deepspeed_checks.check(settings, f"{where}: {given}", ranks)
        elif section.source is not None and not outside:
            yield issue(
                "missing-file",
                where,
                f"{shown(given)} is not packed with the run",
                f"must be a file of program.source, or {MOUNTED}, which program.deepspeed names",
                "correct it, or add the file",
            )
    wanted = {values.get("mixed_precision")}.intersection(_PRECISIONS)
    wanted |= {one for one in _PRECISIONS if values.get(one) is True}
    wanted |= deepspeed_checks.precisions(settings)
    if len(wanted) > 1 and len(deepspeed_checks.precisions(settings)) < 2:
        yield deepspeed_checks.two_precisions(f"{path}: mixed_precision")


def _packed(given: str, section: ProgramSection, root: Path) -> str | None:
    """Return the text of a file of the source by its path in that folder; None if it is not packed."""
    folder = root / section.source if section.source else None
    if folder is None or not folder.is_dir() or not (folder / given).is_file():
        return None
    if PurePosixPath(given).as_posix() not in source_archive.listed(folder):
        return None
    return (folder / given).read_text(encoding="utf-8", errors="replace")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
