"""Ways to offer one GPU as several devices, and what each model can be cut into.

MIG cuts memory, compute and faults apart, so that teams may share a GPU by it. Time-slicing takes turns on
all of it, and MPS bounds memory and compute, but an error of one ends all: both are for one team's own pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class SharingMode(StrEnum):
    """How; values as the stack file and the device plugin spell them."""

    MIG = "mig"
    TIME_SLICING = "timeSlicing"
    MPS = "mps"

    @property
    def isolates(self) -> bool:
        """Whether one pod can neither read another's memory nor end it by a fault."""
        return self is SharingMode.MIG


@dataclass(frozen=True, kw_only=True)
class GpuSharing:
    """Every GPU of a pool's nodes as several devices `nvidia.com/gpu`."""

    mode: SharingMode
    shares: int
    """Devices that one GPU is offered as."""
    profile: str = ""
    """Of each device, with MIG only."""


MIG_PROFILES: Final[Mapping[str, Mapping[str, int]]] = {
    "a100": {
        "1g.5gb": 7,
        "1g.10gb": 4,
        "2g.10gb": 3,
        "3g.20gb": 2,
        "4g.20gb": 1,
        "7g.40gb": 1,
    },
    "a100-80gb": {
        "1g.10gb": 7,
        "1g.20gb": 4,
        "2g.20gb": 3,
        "3g.40gb": 2,
        "4g.40gb": 1,
        "7g.80gb": 1,
    },
    "h100": {
        "1g.10gb": 7,
        "1g.20gb": 4,
        "2g.20gb": 3,
        "3g.40gb": 2,
        "4g.40gb": 1,
        "7g.80gb": 1,
    },
    "h200": {
        "1g.18gb": 7,
        "1g.35gb": 4,
        "2g.35gb": 3,
        "3g.71gb": 2,
        "4g.71gb": 1,
        "7g.141gb": 1,
    },
    "b200": {
        "1g.23gb": 7,
        "1g.45gb": 4,
        "2g.45gb": 3,
        "3g.90gb": 2,
        "4g.90gb": 1,
        "7g.180gb": 1,
    },
}
"""By `gpu.model`, how many instances of each profile fill a GPU; a model that is not named has no MIG, or
none that we know of. From the default configuration of NVIDIA's MIG manager (mig-parted)."""


def instances(profile: str, models: Iterable[str]) -> int | None:
    """How many instances of a profile every GPU of these models gives; None where one cannot, or they differ."""
    found = {MIG_PROFILES.get(model, {}).get(profile) for model in models}
    return found.pop() if len(found) == 1 else None


def profiles(models: Iterable[str]) -> tuple[str, ...]:
    """Profiles that all of these models have, the smallest first."""
    tables = [MIG_PROFILES.get(model, {}) for model in models]
    first = tables[0] if tables else {}
    return tuple(name for name, n in first.items() if all(t.get(name) == n for t in tables))
