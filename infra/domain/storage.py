"""Shared storage: what gives a team its two ReadWriteMany volumes, whoever keeps the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pulumi


@dataclass(frozen=True, kw_only=True)
class VolumeSizes:
    """What each team gets (Kubernetes quantities such as 5Ti)."""

    checkpoints: str
    datasets: str


@dataclass(frozen=True, kw_only=True)
class Volume:
    """Where one claim gets its volume."""

    size: str
    storage_class: str
    """Empty for a volume that exists beforehand; the cluster's default class is never meant."""
    name: str | None = None
    """The PersistentVolume that exists beforehand; None: the class makes one for the claim."""
    needs: tuple[pulumi.Resource, ...] = ()
    """What is there before the claim, and goes after it."""


@dataclass(frozen=True, kw_only=True)
class TeamVolumes:
    """The two volumes of a team; pods of its runs mount both."""

    checkpoints: Volume
    datasets: Volume


class SharedStorage(Protocol):
    """A file system that many pods write at once: a cloud's, a class of the cluster, simulated."""

    def volumes(self, team: str) -> TeamVolumes:
        """Volumes of one of the stack's teams; no other team's pods can mount them."""
        ...


def provisioned(storage_class: str, sizes: VolumeSizes, *needs: pulumi.Resource) -> TeamVolumes:
    """Volumes that a StorageClass makes, one for each claim."""

    def volume(size: str) -> Volume:
        return Volume(size=size, storage_class=storage_class, needs=needs)

    return TeamVolumes(checkpoints=volume(sizes.checkpoints), datasets=volume(sizes.datasets))


@dataclass(frozen=True, kw_only=True)
class NamedStorageClass:
    """A class that the cluster has already, and that serves ReadWriteMany."""

    storage_class: str
    sizes: VolumeSizes

    def volumes(self, team: str) -> TeamVolumes:
        """The class makes a volume for each claim, so every team's are its own."""
        return provisioned(self.storage_class, self.sizes)
