"""Catalog of instance types: hardware, resources for training, prices, and how often spot is interrupted.

The data is infra/domain/catalog.yaml; `python -m infra.cli.catalog refresh` refreshes it from AWS.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from infra.domain.catalog.interruptions import Band
from infra.domain.quantity import GIB, MIB

SPOT_NOTICE_S: Final = 120
"""Notice before AWS reclaims a spot instance, in seconds."""

DEFAULT_REGION: Final = "us-east-1"
"""Region of the prices of pools outside AWS, such as simulated ones."""

DATA: Final = Path(__file__).parent.with_suffix(".yaml")

_PODS_SMALL: Final = 110
_PODS_LARGE: Final = 250
_LARGE_VCPU: Final = 30
"""EKS caps pods per node at 110 up to 30 vCPU and at 250 above."""

_UNUSABLE_MEMORY: Final = 0.075
"""Share of a type's memory that firmware and kernel use: 3 to 6 %. Karpenter subtracts this much to predict
whether a pod fits a new node (vmMemoryOverheadPercent), and launches none for a pod that requests more."""

_ADDRESSES: Final = ((8, 58), (32, 234))
_ADDRESSES_LARGE: Final = 737
"""The kubelet reserves memory for as many pods as a node has addresses: at most these, by vCPU."""

_DAEMONS_MILLI_CPU: Final = 750
_DAEMONS_MEMORY: Final = 2560 * MIB
"""Requests of DaemonSets (network, storage drivers, device plugin, metrics, logs) per node, at most."""

_COMPUTE_CAPABILITY: Final[Mapping[str, tuple[int, int]]] = {
    "v100": (7, 0),
    "a100": (8, 0),
    "a100-80gb": (8, 0),
    "a10g": (8, 6),
    "l4": (8, 9),
    "l40s": (8, 9),
    "h100": (9, 0),
    "h200": (9, 0),
    "b200": (10, 0),
    "gb200": (10, 0),
    "b300": (10, 3),
}
"""By `gpu.model`; NVIDIA's table of compute capabilities."""


class Architecture(StrEnum):
    """CPU architecture, as in Node labels."""

    AMD64 = "amd64"
    ARM64 = "arm64"


@dataclass(frozen=True, kw_only=True)
class Price:
    """USD per hour of one instance (Linux, shared tenancy).

    None: not offered in the region, or not known.
    """

    on_demand_usd_hour: float | None = None
    spot_usd_hour: float | None = None
    """Typical price on the date of the region's look-up."""


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
    """Memory per GPU as EC2 reports it, slightly less than in the data sheet."""
    efa_card_indexes: tuple[int, ...]
    """Network cards that support EFA; empty: none."""
    network_gbps: float
    """Total of all network cards; on small types a burst value."""
    nvme_gb: int
    """Total of local disks in 10**9 bytes; their data is lost with the instance."""
    architecture: Architecture
    prices: Mapping[str, Price]
    """By region."""
    interruptions: Mapping[str, Band]
    """By region, of spot instances; regions in which AWS does not list the type are absent."""

    @property
    def efa_cards(self) -> int:
        """EFA interfaces of a node, at most."""
        return len(self.efa_card_indexes)

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
        """Lower bound in bytes: visible memory less the kubelet's reservation (255 MiB, and 11 MiB for each
        pod that it has an address for) and its eviction threshold (100 MiB)."""
        addresses = next((n for vcpu, n in _ADDRESSES if self.vcpu <= vcpu), _ADDRESSES_LARGE)
        shown = math.floor(self.memory_gib * GIB * (1 - _UNUSABLE_MEMORY) / MIB)
        return (shown - 255 - 11 * addresses - 100) * MIB

    @property
    def training_milli_cpu(self) -> int:
        """Millicores available to runs: allocatable less requests of DaemonSets."""
        return self.allocatable_milli_cpu - _DAEMONS_MILLI_CPU

    @property
    def training_memory(self) -> int:
        """Bytes available to runs: allocatable less requests of DaemonSets."""
        return self.allocatable_memory - _DAEMONS_MEMORY


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """Source and date of a region's prices, and of its interruption bands."""

    date: datetime.date
    """Of the prices."""
    source: str
    interruptions_source: str
    """With its date; empty: there are no bands."""
    remembered: tuple[str, ...] = ()
    """Types whose prices were written from memory, and never looked up."""


@dataclass(frozen=True)
class Catalog:
    regions: Mapping[str, Lookup]
    """Price look-ups by region."""
    types: Mapping[str, InstanceType]


@cache
def load() -> Catalog:
    """Read the data file, once per process."""
    return parse(DATA.read_text(encoding="utf-8"))


def parse(text: str) -> Catalog:
    # The parser of PyYAML's C library, where it is there: every command reads this file.
    data = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    regions = {
        name: Lookup(
            date=datetime.date.fromisoformat(row["date"]),
            source=row["source"],
            interruptions_source=row["interruptionsSource"],
            remembered=tuple(row["remembered"]),
        )
        for name, row in data["regions"].items()
    }
    return Catalog(regions, {name: _type(name, row) for name, row in data["types"].items()})


def _type(name: str, row: Mapping[str, Any]) -> InstanceType:
    return InstanceType(
        name=name,
        vcpu=row["vcpu"],
        memory_gib=row["memoryGiB"],
        gpus=row["gpus"],
        gpu_model=row["gpuModel"],
        gpu_memory_gib=row["gpuMemoryGiB"],
        efa_card_indexes=tuple(row["efaCards"]),
        network_gbps=row["networkGbps"],
        nvme_gb=row["nvmeGB"],
        architecture=Architecture(row["architecture"]),
        prices={
            region: Price(
                on_demand_usd_hour=row["onDemand"].get(region),
                spot_usd_hour=row["spot"].get(region),
            )
            for region in row["onDemand"].keys() | row["spot"].keys()
        },
        interruptions={
            region: Band(label) for region, label in row["interruptions"].items() if label
        },
    )


def price(name: str, region: str = DEFAULT_REGION) -> Price:
    """Return a type's price in a region; unknown in regions that the catalog lacks.

    Raises KeyError for an unknown type.
    """
    return load().types[name].prices.get(region, Price())


def compute_capability(gpu_model: str) -> tuple[int, int]:
    """Return the major and minor compute capability of a `gpu.model`. Raises KeyError for an unknown one."""
    return _COMPUTE_CAPABILITY[gpu_model]
