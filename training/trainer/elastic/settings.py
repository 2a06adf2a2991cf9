"""What must be equal in all groups of a run, and which settings need not be.

A group that differs is refused when it joins: it would compute other bits, or enter another round than the others.
Every setting is compared unless it is listed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Final

import torch

from training.trainer.config import TrainerConfig

_LEADER: Final = "only the leading group saves"
_REPORTS: Final = "reports change no bit"
_WAITS: Final = "each group decides by itself how long it waits"
_ASKS: Final = "each group may ask for a comparison of states"
_READS: Final = "the same samples are read in another way"
_VERSION: Final = "the version is compared, wherever it lies"

MAY_DIFFER: Final[Mapping[str, str]] = {
    "device": "auto and cuda may mean the same device; the device in use is compared",
    "start_timeout_s": _WAITS,
    "collective_timeout_s": _WAITS,
    "parallel.replicate": "follows from the number of ranks of a group, which is compared",
    "data.path": _VERSION,
    "data.sources[].path": _VERSION,
    "data.sources[].version": "data.version is compared as a hash of all versions in use",
    "data.verify": _READS,
    "data.staging": _READS,
    "data.prefetch_steps": _READS,
    "groups.silent_after_s": _WAITS,
    "checkpoint.every_steps": _LEADER,
    "checkpoint.every_seconds": _LEADER,
    "checkpoint.milestone_every_steps": _LEADER,
    "checkpoint.keep_latest": _LEADER,
    "checkpoint.deadline_s": _LEADER,
    "checkpoint.export": _LEADER,
    "report.hang_after_s": _WAITS,
    "report.end_hung_rank": _WAITS,
    "report.compare_replicas_every_steps": _ASKS,
    "report.share_window_s": _REPORTS,
    "report.every_seconds": _REPORTS,
    "report.metric_lines_every": _REPORTS,
    "report.prometheus_port": _REPORTS,
    "report.prometheus_address": _REPORTS,
    "report.mlflow": _REPORTS,
    "report.mlflow_experiment": _REPORTS,
}
"""Settings that are not compared, by dotted path, and why; `[]` stands for each item of a list."""

DATA_VERSION: Final = "data.version"
"""Compared as it is in use: `latest` may mean another one by now."""
_PACKAGES: Final = ("torch", "numpy", "transformers")
"""Packages that compute, draw samples or define models."""


def describe_settings(
    config: TrainerConfig, version: str, device: torch.device
) -> dict[str, str | float | None]:
    """Return what must be equal in all groups of a run, by dotted path.

    `version`: of the datasets that this group reads; `device`: the one it computes on.
    """
    values: dict[str, Any] = json.loads(json.dumps(config.to_dict()))
    found = {path: value for path, value in _flat(values) if _pattern(path) not in MAY_DIFFER}
    identity = {f"model.{name}": value for name, value in config.model.identity().items()}
    return {**found, **identity, DATA_VERSION: version, **describe_platform(device)}


def describe_platform(device: torch.device) -> dict[str, str | float | None]:
    """Return what the bits of a computation depend on besides the configuration."""
    found: dict[str, str | float | None] = {"device in use": device.type}
    if device.type == "cuda":
        found["GPU model"] = torch.cuda.get_device_name(device)
    else:
        # It decides which vector instructions kernels use, and so the order of their sums.
        found["CPU capability"] = torch.backends.cpu.get_cpu_capability()
    return found | {f"package {name}": metadata.version(name) for name in _PACKAGES}


def _flat(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the scalars inside of a JSON value by dotted path; items of lists by their number."""
    if isinstance(value, dict):
        inner = [(f"{path}.{key}" if path else key, one) for key, one in value.items()]
    elif isinstance(value, list):
        inner = [(f"{path}[{number}]", one) for number, one in enumerate(value)]
    else:
        return [(path, value)]
    return [pair for where, one in inner for pair in _flat(one, where)]


def _pattern(path: str) -> str:
    """Return a path with `[]` for each item of a list."""
    head, *rest = path.split("[")
    return head + "".join(f"[]{part.partition(']')[2]}" for part in rest)
