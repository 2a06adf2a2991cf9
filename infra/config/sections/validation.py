"""Checks of the nodes: their image, schedule and bandwidths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import Field

from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown
from infra.config.partial import Check, PartialStack
from infra.config.sections.node_pools import (
    all_types_known,
    pools_named,
    read_pools,
)
from infra.config.types import Bool, DnsLabel, Number, Str, StrictModel, repository_of
from infra.validation.jobs import NAME_MAX, checked

TRAINER_IMAGE: Final = "trainer"
"""Default image of the checks: its name in `images`."""


class ValidationConfig(StrictModel):
    """Checks of compute and network of the nodes: a namespace with Jobs to start."""

    image: Str = TRAINER_IMAGE
    """Trainer image, which contains the checks: a name in `images`, or a reference by digest."""
    weekly: Bool = False
    """Also check pools with min above 0 on Mondays, on nodes that no run uses."""
    min_gbps: dict[DnsLabel, Annotated[Number, Field(gt=0)]] = Field(default={}, alias="minGBps")
    """By pool, the bus bandwidth in GB/s below which its collective check fails. Default: only reported."""


def _section(stack: PartialStack) -> dict[str, Any] | None:
    found = stack.raw.get("validation")
    return found if isinstance(found, dict) else None


def check_validation_image(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require an image of the stack, or a digest in an allowed registry."""
    section, images = _section(stack), stack.raw.get("images")
    if section is None:
        return
    if not isinstance(images, dict | None):
        return
    known = images or {}
    wanted = section.get("image", TRAINER_IMAGE)
    if not isinstance(wanted, str) or wanted in known:
        return
    registries = stack.raw.get("registries")
    if not re.search(r"@sha256:[0-9a-f]{64}$", wanted):
        yield ConfigIssue(
            path="validation.image",
            code="unknown-name",
            problem=f"unknown image {shown(wanted)}",
            valid=f"must be a name in images ({one_of(known)}) or REPOSITORY@sha256:DIGEST",
            action=did_you_mean(wanted, known, f"add {wanted} to images"),
        )
    elif isinstance(registries, list) and not _from(repository_of(wanted), registries):
        yield ConfigIssue(
            path="validation.image",
            code="registry-not-allowed",
            problem=f"{shown(repository_of(wanted))} is not in an allowed registry",
            valid=f"must be in {one_of(map(str, registries))}",
            action="add its registry to registries, or push it to one of them",
        )


def _from(repository: str, registries: list[Any]) -> bool:
    return any(repository == one or repository.startswith(f"{one}/") for one in registries)


def check_validation_pools(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require pool names short enough for CronJobs, and bandwidths of pools with a collective check."""
    section = _section(stack)
    if section is None or not all_types_known(stack):
        return
    found = checked([pool.pool() for _, pool in read_pools(stack)])
    if section.get("weekly") is True and not any(pool.min for pool in found):
        yield ConfigIssue(
            path="validation.weekly",
            code="weekly-without-nodes",
            problem="no GPU pool always has nodes",
            valid="requires a GPU pool with min above 0: the weekly check starts no nodes",
            action="remove it, or raise the min of a pool",
        )
    gangs = {pool.name for pool in found if pool.max > 1}
    for index, pool in read_pools(stack):
        if pool.name in gangs and len(pool.name) > NAME_MAX:
            yield ConfigIssue(
                path=f"nodePools[{index}].name",
                code="name-too-long",
                problem=f"{len(pool.name)} characters",
                valid=f"must be at most {NAME_MAX} with validation, whose CronJobs are "
                "named after pools",
                action="shorten it",
            )
    wanted = section.get("minGBps")
    for name in wanted if isinstance(wanted, dict) else ():
        if name not in gangs and pools_named(stack):
            yield ConfigIssue(
                path=f"validation.minGBps.{name}",
                code="no-collective-check",
                problem=f"{shown(str(name))} has no collective check",
                valid=f"must be one of {one_of(gangs)}",
                action=did_you_mean(str(name), gangs, "remove it"),
            )


CHECKS: Final[tuple[Check, ...]] = (
    check_validation_image,
    check_validation_pools,
)
