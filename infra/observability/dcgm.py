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


@dataclass(frozen=True, kw_only=True)
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
    """Factor from a value under `name` to the base unit."""
    renamed_scale: float = 1.0
    """Factor from a value under `renamed` to the base unit."""

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> tuple[str, ...]:
        """Return every name of the field, that of the pinned version first."""
        return (self.name, self.renamed) if self.renamed else (self.name,)


GPU_UTIL: Final = Field(
    name="DCGM_FI_DEV_GPU_UTIL",
    kind="gauge",
    help="GPU utilization (in %).",
    renamed="DCGM_FI_DEV_GPU_UTIL_RATIO",
    scale=0.01,
)
MEM_COPY_UTIL: Final = Field(
    name="DCGM_FI_DEV_MEM_COPY_UTIL",
    kind="gauge",
    help="Memory utilization (in %).",
    renamed="DCGM_FI_DEV_MEMORY_UTIL_RATIO",
    scale=0.01,
)
FB_USED: Final = Field(
    name="DCGM_FI_DEV_FB_USED",
    kind="gauge",
    help="Framebuffer memory used (in MiB).",
    renamed="DCGM_FI_DEV_FB_USED_BYTES",
    scale=MIB,
)
FB_FREE: Final = Field(
    name="DCGM_FI_DEV_FB_FREE",
    kind="gauge",
    help="Framebuffer memory free (in MiB).",
    renamed="DCGM_FI_DEV_FB_FREE_BYTES",
    scale=MIB,
)
POWER: Final = Field(
    name="DCGM_FI_DEV_POWER_USAGE",
    kind="gauge",
    help="Power draw (in W).",
    renamed="DCGM_FI_DEV_BOARD_POWER_WATTS",
)
ENERGY: Final = Field(
    name="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    kind="counter",
    help="Total energy consumption since boot (in mJ).",
    renamed="DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
    scale=0.001,
)
GPU_TEMP: Final = Field(
    name="DCGM_FI_DEV_GPU_TEMP",
    kind="gauge",
    help="GPU temperature (in C).",
    renamed="DCGM_FI_DEV_GPU_TEMP_CELSIUS",
)
MEMORY_TEMP: Final = Field(
    name="DCGM_FI_DEV_MEMORY_TEMP",
    kind="gauge",
    help="Memory temperature (in C).",
    renamed="DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
)
SM_CLOCK: Final = Field(
    name="DCGM_FI_DEV_SM_CLOCK",
    kind="gauge",
    help="SM clock frequency (in MHz).",
    renamed="DCGM_FI_DEV_SM_CLOCK_HERTZ",
    scale=1e6,
)
MEM_CLOCK: Final = Field(
    name="DCGM_FI_DEV_MEM_CLOCK",
    kind="gauge",
    help="Memory clock frequency (in MHz).",
    renamed="DCGM_FI_DEV_MEMORY_CLOCK_HERTZ",
    scale=1e6,
)
XID: Final = Field(
    name="DCGM_FI_DEV_XID_ERRORS",
    kind="gauge",
    help="Value of the last XID error encountered.",
    renamed="DCGM_FI_DEV_XID_ERROR",
)
"""The last code, not a count; 0: none since the driver was loaded.

A code hides the one before it: 45, of programs that a broken GPU terminates, directly follows the code of the
cause.
"""
XID_COUNT: Final = Field(
    name="DCGM_EXP_XID_ERRORS_COUNT",
    kind="gauge",
    help="Count of XID errors within the last five minutes.",
)
"""Computed by the exporter from the engine's history: one series per code, in the label `xid`."""
ECC_UNCORRECTABLE: Final = Field(
    name="DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    kind="counter",
    help="Total number of double-bit volatile ECC errors.",
)
ECC_CORRECTABLE: Final = Field(
    name="DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    kind="counter",
    help="Total number of single-bit volatile ECC errors.",
)
ROW_REMAP_FAILURE: Final = Field(
    name="DCGM_FI_DEV_ROW_REMAP_FAILURE",
    kind="gauge",
    help="Whether remapping of rows has failed.",
    renamed="DCGM_FI_DEV_ROW_REMAP_FAILED",
)
NVLINK: Final = Field(
    name="DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    kind="gauge",
    help="Total number of NVLink bandwidth counters for all lanes.",
    renamed="DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
    scale=1e6,
)
"""In MB/s, despite its name."""
GR_ENGINE: Final = Field(
    name="DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    kind="gauge",
    help="Ratio of time the graphics engine is active.",
    renamed="DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
)
TENSOR: Final = Field(
    name="DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    kind="gauge",
    help="Ratio of cycles the tensor (HMMA) pipe is active.",
    renamed="DCGM_FI_PROF_TENSOR_UTIL_RATIO",
)
DRAM: Final = Field(
    name="DCGM_FI_PROF_DRAM_ACTIVE",
    kind="gauge",
    help="Ratio of cycles the device memory interface is active sending or receiving data.",
    renamed="DCGM_FI_PROF_DRAM_UTIL_RATIO",
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
