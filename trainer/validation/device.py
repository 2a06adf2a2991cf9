"""Facts of the compute device: model, driver, CUDA and NCCL versions."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, Final

import torch

_CPU_INFO: Final = Path("/proc/cpuinfo")


def device_facts(device: torch.device) -> dict[str, Any]:
    """Return facts by their names in a check's result line; empty text if unknown."""
    if device.type != "cuda":
        return {"device": "cpu", "model": _cpu_model(), "driver": "", "cuda": "", "nccl": ""}
    return {
        "device": "cuda",
        "model": torch.cuda.get_device_name(device),
        "driver": _driver(),
        "cuda": str(torch.version.cuda or ""),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
    }


def _driver() -> str:
    """Return the version of the node's driver from NVML."""
    with contextlib.suppress(Exception):  # a missing fact must not fail the check
        import pynvml  # type: ignore[import-untyped]

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    return ""


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", _CPU_INFO.read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return ""
