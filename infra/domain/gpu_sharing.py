"""GPU sharing: modes, and the MIG profiles of each model.

MIG isolates memory, compute and faults, so teams may share a GPU. Time-slicing isolates nothing, and MPS limits
memory and compute, but an error of one client ends all: both are for pools of one team.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class SharingMode(StrEnum):
    """Modes, spelled as in the stack file and the device plugin's configuration."""

    MIG = "mig"
    TIME_SLICING = "timeSlicing"
    MPS = "mps"

    @property
    def isolates(self) -> bool:
        """Whether pods on a GPU cannot read each other's memory or end each other by a fault."""
        return self is SharingMode.MIG


@dataclass(frozen=True, kw_only=True)
class GpuSharing:
    """Sharing of every GPU of a pool as several devices `nvidia.com/gpu`."""

    mode: SharingMode
    shares: int
    """Devices per GPU."""
    profile: str = ""
    """MIG profile of each device; MIG only."""


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
"""Instances per GPU by `gpu.model` and profile; other models have no MIG, or no known profiles. From the default
configuration of NVIDIA's MIG manager (mig-parted)."""


def instances(profile: str, models: Iterable[str]) -> int | None:
    """Return a profile's instances per GPU of these models; None where one lacks it or they differ."""
    found = {MIG_PROFILES.get(model, {}).get(profile) for model in models}
    return found.pop() if len(found) == 1 else None


def profiles(models: Iterable[str]) -> tuple[str, ...]:
    """Return the profiles that all of these models support, smallest first."""
    tables = [MIG_PROFILES.get(model, {}) for model in models]
    first = tables[0] if tables else {}
    return tuple(name for name, n in first.items() if all(t.get(name) == n for t in tables))
