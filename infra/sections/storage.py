"""Shared volumes of every team, and S3 buckets."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from infra.domain import naming
from infra.domain.storage import NamedStorageClass, VolumeSizes
from infra.sections.aws import BucketPrefix
from infra.sections.types import Bool, DnsLabel, Int, Size, Str, StrictModel


class StorageKind(StrEnum):
    """Backend of shared volumes."""

    SIMULATED = "simulated"
    STORAGE_CLASS = "storageClass"
    FSX = "fsx"
    EFS = "efs"


class FsxConfig(StrictModel):
    """FSx for Lustre."""

    zone: Str = Field(description="an availability zone, that of the pools that train")
    """Zone of the file system; that of the pools."""
    throughput_per_tib: Literal[125, 250, 500, 1000] = Field(default=250, alias="throughputPerTiB")
    """MB/s for each TiB of storage."""


class EfsConfig(StrictModel):
    """EFS: slower, in all zones, billed by use."""


class BucketsConfig(StrictModel):
    """S3 buckets PREFIX-datasets, PREFIX-checkpoints, PREFIX-artifacts and PREFIX-logs."""

    prefix: BucketPrefix = Field(description="the beginning of the buckets' names")
    """Prefix of bucket names, unique in all of AWS."""
    old_checkpoint_days: Int = Field(default=90, ge=1, le=3650)
    """Days after which checkpoints move to cheaper storage."""


class StorageConfig(StrictModel):
    """Shared volumes of every team: at most one of storageClass, fsx and efs; else simulated."""

    storage_class: DnsLabel | None = None
    """StorageClass that supports ReadWriteMany, such as shared. Default: none."""
    fsx: FsxConfig | None = None
    """FSx for Lustre."""
    efs: EfsConfig | None = None
    """EFS: slower, in all zones, billed by use."""
    checkpoints: Size = Field(description="a size such as 5Ti")
    """Size of each team's checkpoint volume."""
    datasets: Size = Field(description="a size such as 2Ti")
    """Size of each team's dataset volume."""
    protect: Bool | None = None
    """Never delete claims, buckets, keys and file systems. Default: true on a cluster of the stack, else
    false."""
    buckets: BucketsConfig | None = None
    """S3 buckets of the stack; required on AWS."""

    @property
    def kind(self) -> StorageKind:
        """Return the backend of shared volumes."""
        if self.fsx:
            return StorageKind.FSX
        if self.efs:
            return StorageKind.EFS
        return StorageKind.STORAGE_CLASS if self.storage_class else StorageKind.SIMULATED

    @property
    def sizes(self) -> VolumeSizes:
        return VolumeSizes(checkpoints=self.checkpoints, datasets=self.datasets)

    @property
    def named_class(self) -> NamedStorageClass | None:
        """Return the class that the stack names; None where the stack creates its storage."""
        if self.storage_class is None:
            return None
        return NamedStorageClass(storage_class=self.storage_class, sizes=self.sizes)

    @property
    def claim_class(self) -> str:
        """Return the class of every claim; empty where volumes exist before their claims (FSx)."""
        classes = {
            StorageKind.SIMULATED: naming.SIMULATED_STORAGE_CLASS,
            StorageKind.STORAGE_CLASS: self.storage_class or "",
            StorageKind.EFS: naming.EFS_STORAGE_CLASS,
            StorageKind.FSX: "",
        }
        return classes[self.kind]
