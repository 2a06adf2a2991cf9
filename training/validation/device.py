"""The device that ranks of this image compute on, and the versions of what is beneath."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, Final

import torch

_CPU_INFO: Final = Path("/proc/cpuinfo")


def device_facts(device: torch.device) -> dict[str, Any]:
    """Facts under the names that they have in a check's line; empty text where there is none."""
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
    """Version of the node's driver, by its own library."""
    with contextlib.suppress(Exception):  # a fact less is no failed check
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
