"""Restore drills: a known image, and nodes that are large enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown
from infra.config.partial import Check, PartialStack
from infra.config.sections.node_pools import (
    all_types_known,
    read_pools,
)
from infra.config.sections.teams.model import TeamConfig, read_teams
from infra.config.types import repository_of
from infra.domain import quantity
from infra.domain.pools import Workload
from infra.tenancy.restore_drill import OVERHEAD


def _drills(stack: PartialStack) -> Iterator[tuple[str, TeamConfig]]:
    """Yield each team with a restore drill, and the path of its section."""
    known = images(stack)
    for index, team in read_teams(stack):
        drill = team.restore_drill
        if drill.wanted(team.tier, has_image=drill.image in known):
            yield f"teams[{index}].restoreDrill", team


def images(stack: PartialStack) -> dict[str, Any]:
    """Return the section `images`."""
    section = stack.raw.get("images")
    return section if isinstance(section, dict) else {}


def check_drill_image(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require an image of the stack, or a digest in an allowed registry."""
    for place, team in _drills(stack):
        yield from image_issues(stack, place, team.restore_drill.image)


def image_issues(stack: PartialStack, place: str, image: str) -> Iterator[ConfigIssue]:
    """Require `place`.image to be an image of the stack, or a digest in an allowed registry."""
    known, allowed = images(stack), stack.raw.get("registries")
    registries = [r for r in allowed if isinstance(r, str)] if isinstance(allowed, list) else None
    if image not in known:
        if not re.search(r"@sha256:[0-9a-f]{64}$", image):
            yield ConfigIssue(
                path=f"{place}.image",
                code="unknown-name",
                problem=f"unknown image {shown(image)}",
                valid=f"must be a name in images ({one_of(known)}) or REPOSITORY@sha256:DIGEST",
                action=did_you_mean(image, known, "add it to images, or set enabled: false"),
            )
        elif registries is not None and not _from(repository_of(image), registries):
            yield ConfigIssue(
                path=f"{place}.image",
                code="registry-not-allowed",
                problem=f"{shown(repository_of(image))} is not in an allowed registry",
                valid=f"must be in {one_of(registries)}",
                action="add its registry to registries, or push it to one of them",
            )


def _from(repository: str, registries: list[str]) -> bool:
    return any(repository == one or repository.startswith(f"{one}/") for one in registries)


def check_drill_size(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require a restore size that fits a node of the CPU pool and the team's quota."""
    pools = [pool for _, pool in read_pools(stack) if pool.workload is Workload.CPU]
    if not all_types_known(stack) or not pools:
        return
    node = min(t.training_memory for t in pools[0].pool().types)
    for place, team in _drills(stack):
        bound = min(node, quantity.bytes_(team.quota.memory)) - OVERHEAD
        if quantity.bytes_(team.restore_drill.largest) > bound:
            yield ConfigIssue(
                path=f"{place}.largest",
                code="restore-drill-too-large",
                problem=f"{shown(team.restore_drill.largest)} exceeds the memory of {pools[0].name} "
                "nodes or of the team's quota",
                valid=f"must be at most {max(0, bound) // quantity.GIB}Gi",
                action="lower it, or choose larger types for the CPU pool",
            )


CHECKS: Final[tuple[Check, ...]] = (
    check_drill_image,
    check_drill_size,
)
