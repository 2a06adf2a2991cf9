"""DCGM fields that are exported, under the names of dcgm-exporter.

The exporter is pinned to a 4.8 (infra/addons/dcgm_exporter.py). Version 4.9 renames 23 fields and changes the
units of eleven: clocks from MHz to hertz, energy from mJ to J, utilisation from percent to a ratio, memory
from MiB to bytes, NVLink from MB/s to B/s (release notes of 4.9.0). Recording rules accept both names;
nothing else may use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Field:
    """One field of a GPU, and how its name and unit differ between versions."""

    name: str
    """The name up to dcgm-exporter 4.8."""
    kind: str
    """`gauge` or `counter`, as in the exporter's counters file."""
    help: str
    renamed: str = ""
    """The name from 4.9 on; empty: unchanged."""
    scale: float = 1.0
    """Factor from a value under `name` to the base unit, which `renamed` has."""

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> tuple[str, ...]:
        """Return every name of the field, that of the pinned version first."""
        return (self.name, self.renamed) if self.renamed else (self.name,)


GPU_UTIL: Final = Field(
    "DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", "DCGM_FI_DEV_GPU_UTIL_RATIO", 0.01
)
MEM_COPY_UTIL: Final = Field(
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "gauge",
    "Memory utilization (in %).",
    "DCGM_FI_DEV_MEMORY_UTIL_RATIO",
    0.01,
)
FB_USED: Final = Field(
    "DCGM_FI_DEV_FB_USED",
    "gauge",
    "Framebuffer memory used (in MiB).",
    "DCGM_FI_DEV_FB_USED_BYTES",
    MIB,
)
FB_FREE: Final = Field(
    "DCGM_FI_DEV_FB_FREE",
    "gauge",
    "Framebuffer memory free (in MiB).",
    "DCGM_FI_DEV_FB_FREE_BYTES",
    MIB,
)
POWER: Final = Field(
    "DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", "DCGM_FI_DEV_BOARD_POWER_WATTS"
)
ENERGY: Final = Field(
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "counter",
    "Total energy consumption since boot (in mJ).",
    "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
    0.001,
)
GPU_TEMP: Final = Field(
    "DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"
)
MEMORY_TEMP: Final = Field(
    "DCGM_FI_DEV_MEMORY_TEMP",
    "gauge",
    "Memory temperature (in C).",
    "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
)
SM_CLOCK: Final = Field(
    "DCGM_FI_DEV_SM_CLOCK",
    "gauge",
    "SM clock frequency (in MHz).",
    "DCGM_FI_DEV_SM_CLOCK_HERTZ",
    1000000.0,
)
MEM_CLOCK: Final = Field(
    "DCGM_FI_DEV_MEM_CLOCK",
    "gauge",
    "Memory clock frequency (in MHz).",
    "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ",
    1000000.0,
)
XID: Final = Field(
    "DCGM_FI_DEV_XID_ERRORS",
    "gauge",
    "Value of the last XID error encountered.",
    "DCGM_FI_DEV_XID_ERROR",
)
"""The last code, not a count; 0: none since the driver was loaded.

A code hides the one before it: 45, of programs that a broken GPU terminates, directly follows the code of the
cause.
"""
XID_COUNT: Final = Field(
    "DCGM_EXP_XID_ERRORS_COUNT", "gauge", "Count of XID errors within the last five minutes."
)
"""Computed by the exporter from the engine's history: one series per code, in the label `xid`."""
ECC_UNCORRECTABLE: Final = Field(
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Total number of double-bit volatile ECC errors."
)
ECC_CORRECTABLE: Final = Field(
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Total number of single-bit volatile ECC errors."
)
ROW_REMAP_FAILURE: Final = Field(
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "gauge",
    "Whether remapping of rows has failed.",
    "DCGM_FI_DEV_ROW_REMAP_FAILED",
)
NVLINK: Final = Field(
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "gauge",
    "Total number of NVLink bandwidth counters for all lanes.",
    "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
    1000000.0,
)
"""In MB/s, despite its name."""
GR_ENGINE: Final = Field(
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "gauge",
    "Ratio of time the graphics engine is active.",
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
)
TENSOR: Final = Field(
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "gauge",
    "Ratio of cycles the tensor (HMMA) pipe is active.",
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
)
DRAM: Final = Field(
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "gauge",
    "Ratio of cycles the device memory interface is active sending or receiving data.",
    "DCGM_FI_PROF_DRAM_UTIL_RATIO",
)

FIELDS: Final = (
    *(SM_CLOCK, MEM_CLOCK, GPU_TEMP, MEMORY_TEMP, POWER, ENERGY),
    *(GPU_UTIL, MEM_COPY_UTIL, FB_USED, FB_FREE),
    *(XID, ECC_UNCORRECTABLE, ECC_CORRECTABLE, ROW_REMAP_FAILURE),
    *(NVLINK, GR_ENGINE, TENSOR, DRAM),
)
"""Fields of the counters file besides XID_COUNT. The list is short because every field adds to each scrape of
each GPU."""

LABELS: Final = (
    *("gpu", "UUID", "pci_bus_id", "device", "modelName"),
    *("namespace", "pod", "container", "node"),
)
"""Labels of every series of a GPU. `namespace`, `pod` and `container` identify the pod that holds the GPU,
and are absent while none does; the scrape adds `node`. The exporter's label for the node is `Hostname` up to
4.8.2 and `hostname` from 4.8.3 on; no rule reads it."""

APPLICATION_XIDS: Final = (13, 31, 43, 45, 68, 109)
"""Codes that a program causes on healthy hardware (an illegal address, a killed process); NVIDIA's device
plugin keeps a GPU that reports one of them."""


def counters_csv() -> str:
    """Return the exporter's counters file, one line `FIELD, kind, help` per field."""
    return "".join(f"{field.name}, {field.kind}, {field.help}\n" for field in (*FIELDS, XID_COUNT))
