"""What has to be the same in all groups of a run, since the bits depend on it."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping

import torch

from trainyard.publication import describe_process


def describe(
    model: torch.nn.Module, workers: int, seed: int, ranks: int, settings: Mapping[str, str]
) -> dict[str, str]:
    """Return it by name; `settings`: what the program adds, such as the version of its data."""
    shapes = hashlib.sha256()
    for name, parameter in model.named_parameters():
        line = f"{name} {tuple(parameter.shape)} {parameter.dtype} {parameter.requires_grad}\n"
        shapes.update(line.encode())
    packages = {f"version of {name}": text for name, text in describe_process()["packages"].items()}
    kernels = {
        "deterministic kernels": str(torch.are_deterministic_algorithms_enabled()),
        "precision of products of float32": torch.get_float32_matmul_precision(),
    }
    if not _is_on_gpu(model):
        kernels["threads of torch"] = str(torch.get_num_threads())  # they divide sums
    return {
        "workers": str(workers),
        "seed": str(seed),
        "ranks of a group": str(ranks),
        "parameters of the model": shapes.hexdigest()[:16],
        "device": _device(model),
        **kernels,
        **packages,
        **settings,
    }


def refuse(model: torch.nn.Module, workers: int) -> None:
    """Raise ValueError for what has other bits with another number of groups; name what may have them."""
    if workers < 1 or workers & (workers - 1):
        raise ValueError(f"workers: {workers} is not valid; must be a power of two")
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            raise ValueError(
                f"{name or 'model'}: SyncBatchNorm is not valid in groups, since samples are normalised by worker;"
                " valid is BatchNorm; do not call convert_sync_batchnorm"
            )
    if _is_on_gpu(model) and not torch.are_deterministic_algorithms_enabled():
        print(
            "elastic: kernels of the GPU need not be deterministic; losses may then differ from those of an"
            " undisturbed run; call torch.use_deterministic_algorithms(True)",
            file=sys.stderr,
            flush=True,
        )


def differences(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    return [
        f"{name}: {mine.get(name, 'none')} here, {theirs.get(name, 'none')} in the groups that train; must be "
        "the same; start this group with theirs, or all groups anew"
        for name in sorted({*mine, *theirs})
        if mine.get(name) != theirs.get(name)
    ]


def _is_on_gpu(model: torch.nn.Module) -> bool:
    return any(parameter.is_cuda for parameter in model.parameters())


def _device(model: torch.nn.Module) -> str:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
