"""Shared storage: the interface that provides a team's two ReadWriteMany volumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pulumi


@dataclass(frozen=True, kw_only=True)
class VolumeSizes:
    """Sizes of each team's volumes (Kubernetes quantities such as 5Ti)."""

    checkpoints: str
    datasets: str


@dataclass(frozen=True, kw_only=True)
class Volume:
    size: str
    storage_class: str
    """Empty for a volume that already exists; never the cluster's default class."""
    name: str | None = None
    """An existing PersistentVolume; None: the class provisions one."""
    needs: tuple[pulumi.Resource, ...] = ()
    """Resources that the claim depends on."""


@dataclass(frozen=True, kw_only=True)
class TeamVolumes:
    """The two volumes of a team; pods of its runs mount both."""

    checkpoints: Volume
    datasets: Volume


class SharedStorage(Protocol):
    """A shared file system: a cloud's, a class of the cluster, or simulated."""

    def volumes(self, team: str) -> TeamVolumes:
        """Return a team's volumes; other teams' pods cannot mount them."""
        ...


def provisioned(storage_class: str, sizes: VolumeSizes, *needs: pulumi.Resource) -> TeamVolumes:
    """Return volumes that a StorageClass provisions, one per claim."""

    def volume(size: str) -> Volume:
        return Volume(size=size, storage_class=storage_class, needs=needs)

    return TeamVolumes(checkpoints=volume(sizes.checkpoints), datasets=volume(sizes.datasets))


@dataclass(frozen=True, kw_only=True)
class NamedStorageClass:
    """An existing class of the cluster that supports ReadWriteMany."""

    storage_class: str
    sizes: VolumeSizes

    def volumes(self, team: str) -> TeamVolumes:
        return provisioned(self.storage_class, self.sizes)
