"""Shared volumes: one backend, and one that real nodes can mount."""

from __future__ import annotations

from collections.abc import Iterator

from infra.config.model import StackConfig
from infra.sections.errors import ConfigIssue, issue


def check_storage_backend(stack: StackConfig) -> Iterator[ConfigIssue]:
    storage = stack.storage
    given = {"storageClass": storage.storage_class, "fsx": storage.fsx, "efs": storage.efs}
    chosen = [key for key, value in given.items() if value is not None]
    if len(chosen) > 1:
        yield issue(
            "storage-backend",
            "storage",
            f"{' and '.join(chosen)} are set",
            f"at most one of {', '.join(given)} is valid",
            "remove the others",
        )
    if chosen or all(pool.nodes.simulated for pool in stack.node_pools):
        return
    if stack.eks:
        yield issue(
            "storage-missing",
            "storage",
            "no storage backend is set",
            "a cluster on AWS requires fsx, efs or storageClass",
            "add fsx: {zone: ...} for training, or efs: {}",
        )
    else:
        yield issue(
            "missing",
            "storage.storageClass",
            "missing",
            "must be a StorageClass of the cluster that serves ReadWriteMany",
            "add it",
        )
