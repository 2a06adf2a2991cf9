"""Simulated GPU metrics with DCGM's names and units.

Utilization and memory come from the pod's processes; other values are derived from them by simple rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from infra.observability import dcgm
from infra.observability.dcgm import Field

IDLE_W: Final = 60.0
PEAK_W: Final = 400.0
IDLE_C: Final = 30.0
PEAK_C: Final = 70.0
IDLE_MHZ: Final = 210.0
PEAK_MHZ: Final = 1410.0
MEMORY_MHZ: Final = 1215.0

SIMULATED_LOAD: Final = 0.9
SIMULATED_MEMORY: Final = 0.7
"""Constant values, as fractions, for pods on KWOK nodes, which have no processes."""


@dataclass(frozen=True, kw_only=True)
class Load:
    busy: float = 0.0
    """Utilization, 0 to 1."""
    memory_mib: float = 0.0


def power_w(load: Load) -> float:
    """Interpolate between idle and peak power."""
    return IDLE_W + (PEAK_W - IDLE_W) * load.busy


def gpu_fields(memory_mib: int, load: Load, energy_mj: float) -> dict[Field, float]:
    """Return every field of the counters file. `energy_mj`: energy since the exporter started."""
    used = min(load.memory_mib, memory_mib)
    degrees = IDLE_C + (PEAK_C - IDLE_C) * load.busy
    return {
        dcgm.SM_CLOCK: PEAK_MHZ if load.busy else IDLE_MHZ,
        dcgm.MEM_CLOCK: MEMORY_MHZ,
        dcgm.GPU_TEMP: round(degrees),
        dcgm.MEMORY_TEMP: round(degrees),
        dcgm.POWER: power_w(load),
        dcgm.ENERGY: energy_mj,
        dcgm.GPU_UTIL: round(100 * load.busy),
        dcgm.MEM_COPY_UTIL: round(50 * load.busy),
        dcgm.FB_USED: round(used),
        dcgm.FB_FREE: memory_mib - round(used),
        dcgm.XID: 0,
        dcgm.ECC_UNCORRECTABLE: 0,
        dcgm.ECC_CORRECTABLE: 0,
        dcgm.ROW_REMAP_FAILURE: 0,
        dcgm.NVLINK: 0,
        dcgm.GR_ENGINE: load.busy,
        dcgm.TENSOR: 0.6 * load.busy,
        dcgm.DRAM: 0.5 * load.busy,
    }
