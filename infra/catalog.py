"""Instance types: what a node has, what is left of it for training, and what it costs."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import yaml

from infra.quantity import GIB, MIB

SPOT_NOTICE_S: Final = 120
"""Warning before AWS takes a spot instance back, in seconds."""

_DATA: Final = Path(__file__).with_name("catalog.yaml")

_PODS_SMALL: Final = 110
_PODS_LARGE: Final = 250
_LARGE_VCPU: Final = 30
"""EKS caps pods per node at 110 up to 30 vCPU and at 250 above."""

_DAEMONS_MILLI_CPU: Final = 500
_DAEMONS_MEMORY: Final = GIB
"""What DaemonSets (network, storage drivers, device plugin, metrics) may request on each node."""


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """One instance type, with the units of its fields in their names."""

    name: str
    vcpu: int
    memory_gib: int
    gpus: int
    gpu_model: str
    """Value of the `gpu.model` label; empty without GPUs."""
    gpu_memory_gib: int
    """Per GPU."""
    efa_cards: int
    on_demand_usd_hour: float
    spot_usd_hour: float
    """Typical, on the catalog's date."""

    @property
    def max_pods(self) -> int:
        """The kubelet's limit."""
        return _PODS_LARGE if self.vcpu > _LARGE_VCPU else _PODS_SMALL

    @property
    def allocatable_milli_cpu(self) -> int:
        """Millicores left after the kubelet's reservation (EKS' formula: 6 %, 1 %, 0.5 %, 0.25 %)."""
        reserved = 60.0
        reserved += 10.0 if self.vcpu > 1 else 0.0
        reserved += 5.0 * min(max(self.vcpu - 2, 0), 2)
        reserved += 2.5 * max(self.vcpu - 4, 0)
        return self.vcpu * 1000 - round(reserved)

    @property
    def allocatable_memory(self) -> int:
        """Bytes left after the kubelet's reservation (255 MiB + 11 MiB a pod) and its eviction bar."""
        return self.memory_gib * GIB - (255 + 11 * self.max_pods + 100) * MIB

    @property
    def training_milli_cpu(self) -> int:
        """Millicores that queued runs may have: allocatable less what DaemonSets request."""
        return self.allocatable_milli_cpu - _DAEMONS_MILLI_CPU

    @property
    def training_memory(self) -> int:
        """Bytes that queued runs may have: allocatable less what DaemonSets request."""
        return self.allocatable_memory - _DAEMONS_MEMORY


@dataclass(frozen=True)
class Catalog:
    """The pinned data file."""

    date: datetime.date
    """When prices were looked up."""
    region: str
    types: dict[str, InstanceType]


@cache
def load() -> Catalog:
    """Read the data file, once per process."""
    data = yaml.safe_load(_DATA.read_text())
    types = {
        name: InstanceType(
            name=name,
            vcpu=row["vcpu"],
            memory_gib=row["memoryGiB"],
            gpus=row["gpus"],
            gpu_model=row["gpuModel"],
            gpu_memory_gib=row["gpuMemoryGiB"],
            efa_cards=row["efa"],
            on_demand_usd_hour=row["onDemand"],
            spot_usd_hour=row["spot"],
        )
        for name, row in data["types"].items()
    }
    return Catalog(datetime.date.fromisoformat(data["date"]), data["region"], types)
