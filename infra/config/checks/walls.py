"""What the walls around team namespaces would refuse anyway, said before anything is created."""

from __future__ import annotations

from collections.abc import Iterator

from infra.config.checks.parts import Parts
from infra.config.fields import repository_of
from infra.config.mistakes import Mistake, one_of, shown


def registries(parts: Parts) -> Iterator[Mistake]:
    """Images that runs may name are from registries that pods may have images from."""
    allowed, images = parts.raw.get("registries"), parts.raw.get("images")
    if not isinstance(allowed, list) or not isinstance(images, dict):
        return
    known = [registry for registry in allowed if isinstance(registry, str)]
    for name, image in images.items():
        if not isinstance(image, str):
            continue
        repository = repository_of(image)
        if not any(repository == one or repository.startswith(f"{one}/") for one in known):
            yield Mistake(
                path=f"images.{name}",
                got=shown(repository),
                allowed=f"images from registries: {one_of(known)}" if known else "no image at all",
                remedy="add its registry to registries, or push it to one of them",
            )


def rdma(parts: Parts) -> Iterator[Mistake]:
    """A team is let out of Pod Security only where there is something to gain by it."""
    if any(pool.network.rdma for _, pool in parts.pools):
        return
    for index, team in parts.teams:
        if team.rdma:
            yield Mistake(
                path=f"teams[{index}].rdma",
                got="true",
                allowed="it where a pool has network: efa or roce",
                remedy="remove it",
            )
