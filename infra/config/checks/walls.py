"""What the walls around team namespaces would refuse anyway, said before anything is created."""

from __future__ import annotations

from collections.abc import Iterator

from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue, one_of, shown
from infra.config.types import is_repository, repository_of


def check_image_registries(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require images from the registries that pods may use."""
    allowed, images = parts.raw.get("registries"), parts.raw.get("images")
    if not isinstance(allowed, list) or not isinstance(images, dict):
        return
    if not all(isinstance(one, str) and is_repository(one) for one in allowed):
        return  # An invalid registry is reported; the images may be in the one that was meant.
    known = [str(registry) for registry in allowed]
    for name, image in images.items():
        if not isinstance(image, str):
            continue
        repository = repository_of(image)
        if not any(repository == one or repository.startswith(f"{one}/") for one in known):
            yield ConfigIssue(
                path=f"images.{name}",
                code="registry-not-allowed",
                problem=f"{shown(repository)} is not in an allowed registry",
                valid=f"must be in {one_of(known)}" if known else "registries allows no image",
                action="add its registry to registries, or push it to one of them",
            )


def check_rdma(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Allow IPC_LOCK only where a pool has an RDMA network."""
    if any(pool.network.rdma for _, pool in parts.pools):
        return
    for index, team in parts.teams:
        if team.rdma:
            yield ConfigIssue(
                path=f"teams[{index}].rdma",
                code="rdma-unused",
                problem="no pool has an RDMA network",
                valid="requires a pool with network: efa or roce",
                action="remove it",
            )
