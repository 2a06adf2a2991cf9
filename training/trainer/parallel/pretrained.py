"""Initial weights from safetensors files; each rank reads only its shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from training.config_errors import ConfigError, ConfigIssue
from training.trainer.parallel.sharding import local_region, to_local

_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"


@torch.no_grad()
def load_pretrained(model: torch.nn.Module, folder: Path) -> None:
    """Fill this rank's part of every parameter. Raises ConfigError for weights that do not fit."""
    stored = _files(folder)
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    issues: list[str] = []
    by_file: dict[str, list[tuple[str, str, torch.nn.Parameter]]] = {}
    for name, parameter in model.named_parameters():
        key = name if name in stored else name.removeprefix(prefix)
        if key in stored:
            by_file.setdefault(stored[key], []).append((name, key, parameter))
        else:
            issues.append(f"model.weights: {folder}: holds no {name}")
    for file, wanted in sorted(by_file.items()):
        issues += _read(folder / file, wanted)
    if issues:
        more = f" (and {len(issues) - 1} more)" if len(issues) > 1 else ""
        raise ConfigError([f"{issues[0]}{more}; must be the weights of this model; correct it"])


def _files(folder: Path) -> Mapping[str, str]:
    """File name by tensor name."""
    try:
        if (folder / _INDEX).exists():
            index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
            return {str(name): str(file) for name, file in index["weight_map"].items()}
        with safe_open(folder / _SINGLE, framework="pt") as stored:
            return dict.fromkeys(stored.keys(), _SINGLE)
    except (OSError, ValueError, KeyError, AttributeError, SafetensorError) as error:
        raise ConfigError(
            [
                ConfigIssue(
                    path=f"model.weights: {folder}",
                    problem=" ".join(str(error).split()),
                    valid=f"must be a folder with {_SINGLE} or {_INDEX}",
                    action="correct model.path",
                    code="invalid-file",
                )
            ]
        ) from None


def _read(file: Path, wanted: list[tuple[str, str, torch.nn.Parameter]]) -> list[str]:
    issues = []
    try:
        with safe_open(file, framework="pt") as stored:
            for name, key, parameter in wanted:
                part: Any = stored.get_slice(key)
                if list(part.get_shape()) != list(parameter.shape):
                    issues.append(
                        f"model.weights: {file}: {name} has shape {list(part.get_shape())}, the "
                        f"model {list(parameter.shape)}"
                    )
                    continue
                region = local_region(parameter)
                to_local(parameter).copy_(part[region.slices] if region.slices else part[:])
    except (OSError, KeyError, SafetensorError) as error:
        issues.append(f"model.weights: {file}: {' '.join(str(error).split())}")
    return issues
