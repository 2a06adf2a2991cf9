"""Images that runs may name, and the registries that pods may pull from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.config.errors import ConfigIssue, one_of, shown
from infra.config.partial import Check, PartialStack
from infra.config.sections.node_pools import (
    read_pools,
)
from infra.config.types import SOURCE_SUFFIX, is_repository, repository_of


def check_source_images(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject images of the checkout on real nodes, which pull from a registry."""
    images = stack.raw.get("images")
    if not isinstance(images, dict) or all(p.nodes.simulated for _, p in read_pools(stack)):
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


def check_image_registries(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require images from the registries that pods may use."""
    allowed, images = stack.raw.get("registries"), stack.raw.get("images")
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


CHECKS: Final[tuple[Check, ...]] = (
    check_source_images,
    check_image_registries,
)
