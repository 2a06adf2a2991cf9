"""Check DeepSpeed's configuration against the run: batch arithmetic, and offload against the node's memory.

Keys and formulas are those of DeepSpeed's documentation (Configuration JSON; Memory Requirements).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from infra.domain import quantity
from infra.sections.errors import ConfigIssue, issue, shown
from trainyard.contract import SCRATCH_MOUNT

_AUTO: Final = "auto"
"""Value that integrations such as transformers replace by their own."""
_BYTES_PER_PARAMETER: Final = {False: 16, True: 18}
"""Of model states in a node's memory: fp32 master copy, two moments, gradients; then the parameters."""
_PINNED_ELEMENT: Final = 2
"""Bytes of an element in buffers for parameters."""
_BATCH: Final = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)


def parse(text: str, path: str) -> tuple[dict[str, Any], list[ConfigIssue]]:
    """Return the configuration in a file's text, or why it is none."""
    try:
        values = json.loads(text)
    except ValueError as error:
        return {}, [
            _issue(
                path,
                "invalid-file",
                f"is not JSON: {error}",
                "must be DeepSpeed's configuration as JSON",
            )
        ]
    if not isinstance(values, dict):
        return {}, [
            _issue(
                path,
                "invalid-file",
                "is not a JSON object",
                "must be DeepSpeed's configuration as JSON",
            )
        ]
    return values, []


def check(values: Mapping[str, Any], path: str, world_size: int) -> Iterator[ConfigIssue]:
    """Check what follows from the file and the number of ranks."""
    yield from _batch(values, path, world_size)
    if len(precisions(values)) > 1:
        yield two_precisions(path)
    zero = values.get("zero_optimization")
    if not isinstance(zero, Mapping):
        return
    stage = zero.get("stage", 0)
    for key, least in (("offload_optimizer", 1), ("offload_param", 3)):
        section = zero.get(key)
        if not isinstance(section, Mapping) or section.get("device", "none") == "none":
            continue
        where = f"{path}: zero_optimization.{key}"
        if isinstance(stage, int) and stage < least:
            yield _issue(
                where,
                "zero-stage",
                f"has no effect with stage {stage}",
                f"requires stage {least} or more",
            )
        target = str(section.get("nvme_path", ""))
        if section["device"] == "nvme" and not target.startswith(f"{SCRATCH_MOUNT}/"):
            yield _issue(
                f"{where}.nvme_path",
                "offload-path",
                f"{shown(target)} is not on the node's scratch space",
                f"must be below {SCRATCH_MOUNT}, as everything else is read-only or in memory",
            )


def precisions(values: Mapping[str, Any]) -> set[str]:
    names = {"fp16": "fp16", "bf16": "bf16", "bfloat16": "bf16"}
    return {
        name
        for key, name in names.items()
        if isinstance(section := values.get(key), Mapping) and section.get("enabled") is True
    }


def two_precisions(path: str) -> ConfigIssue:
    return _issue(
        path,
        "two-precisions",
        "fp16 and bf16 are both on, and a run has one mixed precision",
        "must be one of them, or none",
        "turn one off: bf16 needs no loss scaling, and GPUs before Ampere have fp16 only",
    )


def check_memory(
    values: Mapping[str, Any], path: str, nodes: int, memory: int, parameters: int | None
) -> Iterator[ConfigIssue]:
    """Check what is offloaded to a node's memory of `memory` bytes; `parameters` of the model, if known."""
    zero = values.get("zero_optimization")
    if not isinstance(zero, Mapping):
        return
    on_cpu = {
        key: section
        for key in ("offload_optimizer", "offload_param")
        if isinstance(section := zero.get(key), Mapping) and section.get("device") == "cpu"
    }
    if not on_cpu:
        return
    needed = 0
    if parameters is not None:
        needed = parameters * _BYTES_PER_PARAMETER["offload_param" in on_cpu] // nodes
    buffers = on_cpu.get("offload_param", {})
    count, size = buffers.get("buffer_count", 5), buffers.get("buffer_size", 0)
    if isinstance(count, int) and isinstance(size, int):
        needed += count * size * _PINNED_ELEMENT
    if needed > memory:
        yield _issue(
            f"{path}: zero_optimization.{' and '.join(on_cpu)}",
            "offload-memory",
            f"needs {needed / quantity.GIB:.0f} GiB of memory, and a pod has {memory / quantity.GIB:.0f} GiB",
            "must fit resources.memory",
            "use more nodes, raise resources.memory, or do not offload to cpu",
        )


def _batch(values: Mapping[str, Any], path: str, world_size: int) -> Iterator[ConfigIssue]:
    """train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks."""
    given = {key: values[key] for key in _BATCH if values.get(key, _AUTO) != _AUTO}
    for key, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            yield _issue(
                f"{path}: {key}",
                "invalid-batch",
                f"{shown(value)} is not a positive number",
                "must be a whole number from 1, or auto",
            )
            return
    if "train_batch_size" not in given:
        return
    total = given["train_batch_size"]
    micro = given.get("train_micro_batch_size_per_gpu")
    steps = given.get("gradient_accumulation_steps")
    product = (micro or 1) * (steps or 1) * world_size
    exact = micro is not None and steps is not None
    if (total != product) if exact else total % product:
        yield _issue(
            f"{path}: train_batch_size",
            "batch-size",
            f"{total} does not fit {micro or 'N'} samples x {steps or 'N'} steps x {world_size} ranks",
            f"must be {product if exact else f'a multiple of {product}'}",
            "correct it, or remove it: DeepSpeed derives it",
        )


def _issue(
    path: str, code: str, problem: str, valid: str, action: str = "correct the file"
) -> ConfigIssue:
    return issue(code, path, problem, valid, action)
