"""Storage and images that fit the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue, shown
from infra.config.types import SOURCE_SUFFIX

_CHOICES: Final = ("storageClass", "fsx", "efs")


def _chosen(parts: PartialStack) -> list[str]:
    """What the file says keeps volumes, whether or not it says it well."""
    storage: Any = parts.raw.get("storage")
    return [key for key in _CHOICES if isinstance(storage, dict) and storage.get(key) is not None]


def check_single_storage_backend(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Allow one storage backend."""
    chosen = _chosen(parts)
    if len(chosen) > 1:
        yield ConfigIssue(
            path="storage",
            code="storage-backend",
            problem=f"{' and '.join(chosen)} are set",
            valid=f"at most one of {', '.join(_CHOICES)} is valid",
            action="remove the others",
        )


def check_no_simulated_storage_on_real_nodes(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require a storage backend for real nodes, which cannot mount simulated storage."""
    real = any(not pool.nodes.simulated for _, pool in parts.pools)
    if not parts.storage or _chosen(parts) or not real:
        return
    if parts.provider == "eks":
        yield ConfigIssue(
            path="storage",
            code="storage-missing",
            problem="no storage backend is set",
            valid="a cluster on AWS requires fsx, efs or storageClass",
            action="add fsx: {zone: ...} for training, or efs: {}",
        )
    else:
        yield ConfigIssue(
            path="storage.storageClass",
            code="missing",
            problem="missing",
            valid="must be a StorageClass of the cluster that serves ReadWriteMany",
            action="add it",
        )


def check_source_images(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Reject images of the checkout on real nodes, which pull from a registry."""
    images = parts.raw.get("images")
    if not isinstance(images, dict) or all(p.nodes.simulated for _, p in parts.pools):
        return
    for name, reference in images.items():
        if isinstance(reference, str) and reference.endswith(SOURCE_SUFFIX):
            yield ConfigIssue(
                path=f"images.{name}",
                code="source-image",
                problem=f"{shown(reference)} is built from this checkout, which only simulated "
                "nodes can run",
                valid="must be REPOSITORY@sha256:DIGEST on real nodes",
                action="push the image and pin the digest that the registry shows",
            )
