"""Storage and images that fit the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.config.checks.parts import Parts
from infra.config.fields import SOURCE_SUFFIX
from infra.config.mistakes import Mistake, shown

_CHOICES: Final = ("storageClass", "fsx", "efs")


def _chosen(parts: Parts) -> list[str]:
    """What the file says keeps volumes, whether or not it says it well."""
    storage: Any = parts.raw.get("storage")
    return [key for key in _CHOICES if isinstance(storage, dict) and storage.get(key) is not None]


def one_storage(parts: Parts) -> Iterator[Mistake]:
    """Volumes are in one place."""
    chosen = _chosen(parts)
    if len(chosen) > 1:
        yield Mistake(
            path="storage",
            got=" and ".join(chosen),
            allowed=f"at most one of {', '.join(_CHOICES)}",
            remedy="remove the others",
        )


def real_storage(parts: Parts) -> Iterator[Mistake]:
    """Only simulated nodes can mount the simulated storage."""
    real = any(not pool.nodes.simulated for _, pool in parts.pools)
    if not parts.storage or _chosen(parts) or not real:
        return
    if parts.provider == "eks":
        yield Mistake(
            path="storage",
            got="nothing that keeps volumes",
            allowed="fsx, efs or storageClass",
            remedy="add fsx: {zone: ...} for training, or efs: {}",
        )
    else:
        yield Mistake(
            path="storage.storageClass",
            got="nothing",
            allowed="a StorageClass of the cluster that serves ReadWriteMany",
            remedy="add it",
        )


def source_images(parts: Parts) -> Iterator[Mistake]:
    """Only simulated nodes can run the checkout itself; others pull from a registry."""
    images = parts.raw.get("images")
    if not isinstance(images, dict) or all(p.nodes.simulated for _, p in parts.pools):
        return
    for name, reference in images.items():
        if isinstance(reference, str) and reference.endswith(SOURCE_SUFFIX):
            yield Mistake(
                path=f"images.{name}",
                got=shown(reference),
                allowed="REPOSITORY@sha256:DIGEST where nodes are real",
                remedy="push the image and pin the digest that the registry shows",
            )
