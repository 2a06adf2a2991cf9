"""PersistentVolumes of a team's file system, and its size in FSx's increments."""

from __future__ import annotations

from typing import Any, Final

import pulumi

from infra.domain import naming, quantity
from infra.domain.storage import VolumeSizes
from infra.kubernetes.objects import Manifest, metadata

DRIVER: Final = "fsx.csi.aws.com"

SMALLEST_GIB: Final = 1200
STEP_GIB: Final = 2400
"""Sizes of a PERSISTENT_2 SSD file system: 1,200 GiB, 2,400 GiB and multiples of that.

https://docs.aws.amazon.com/fsx/latest/APIReference/API_CreateFileSystem.html, StorageCapacity.
"""


def capacity_gib(sizes: VolumeSizes) -> int:
    """Return the size in GiB of the smallest file system that fits both volumes."""
    needed = quantity.bytes_(sizes.checkpoints) + quantity.bytes_(sizes.datasets)
    if needed <= SMALLEST_GIB * quantity.GIB:
        return SMALLEST_GIB
    return -(-needed // (STEP_GIB * quantity.GIB)) * STEP_GIB


def volume_name(team: str, claim: str) -> str:
    return f"{naming.namespace(team)}-{claim}"


def persistent_volume(
    team: str,
    claim: str,
    size: str,
    *,
    file_system: pulumi.Input[str],
    dns_name: pulumi.Input[str],
    mount_name: pulumi.Input[str],
) -> Manifest:
    """Return the volume of directory `/CLAIM` of a team's file system, bound to that team's claim.

    The driver mounts `DNSNAME@tcp:/MOUNTNAME`, so a longer mount name is a directory below it. The handle must
    differ between the two volumes of a file system, or a pod with both never starts (aws-fsx-csi-driver issue
    328).
    """
    csi: dict[str, Any] = {
        "driver": DRIVER,
        "volumeHandle": pulumi.Output.concat(file_system, "-", claim),
        # Root owns a new file system, and training pods run as another user. The kubelet applies their
        # fsGroup only where a volume names a type and, among others, ReadWriteOnce; the driver uses the
        # first mode.
        "fsType": "lustre",
        "volumeAttributes": {
            "dnsname": dns_name,
            "mountname": pulumi.Output.concat(mount_name, "/", claim),
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": metadata(
            volume_name(team, claim), labels=naming.object_labels("storage", team)
        ),
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "mountOptions": ["flock"],
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": naming.namespace(team),
                "name": claim,
            },
            "csi": csi,
        },
    }
