"""What has to be the same in all groups of a run, since the bits depend on it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping

import torch

from trainyard.lineage import describe_process


def describe(
    model: torch.nn.Module, workers: int, seed: int, ranks: int, settings: Mapping[str, str]
) -> dict[str, str]:
    """Return it by name; `settings`: what the program adds, such as the version of its data."""
    shapes = hashlib.sha256()
    for name, parameter in model.named_parameters():
        line = f"{name} {tuple(parameter.shape)} {parameter.dtype} {parameter.requires_grad}\n"
        shapes.update(line.encode())
    packages = {f"version of {name}": text for name, text in describe_process()["packages"].items()}
    return {
        "workers": str(workers),
        "seed": str(seed),
        "ranks of a group": str(ranks),
        "parameters of the model": shapes.hexdigest()[:16],
        "device": _device(model),
        **packages,
        **settings,
    }


def differences(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return a line for each difference."""
    return [
        f"{name}: {mine.get(name, 'none')} here, {theirs.get(name, 'none')} in the groups that train; must be "
        "the same; start this group with theirs, or all groups anew"
        for name in sorted({*mine, *theirs})
        if mine.get(name) != theirs.get(name)
    ]


def _device(model: torch.nn.Module) -> str:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
