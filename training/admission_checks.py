"""Checks of a run against the admission policies of its team's namespace, before it is created."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from infra.domain.platform import Platform
from infra.sections.errors import ConfigIssue, issue, one_of, shown
from infra.tenancy.admission import images, priorities
from training.run_schema import RunFile


def check_admission(
    file: RunFile, platform: Platform, references: Mapping[str, str]
) -> Iterator[ConfigIssue]:
    """Check the image against the stack's registries, and the priority against the team's tier."""
    image = references.get(file.image, file.image)
    # name_checks reports an image without a digest.
    if "@sha256:" in image and not re.fullmatch(images.pattern(platform.registries), image):
        yield issue(
            "registry-not-allowed",
            "image",
            f"{shown(image.partition('@')[0])} is not from a registry of the stack",
            f"must be from {one_of(platform.registries)}",
            "push it there, or add its registry to the stack's registries",
        )
    if file.team in platform.teams and file.priority in platform.priorities:
        tier = platform.teams[file.team].tier
        own = priorities.allowed(platform.priorities, platform.default_priority)[tier]
        if file.priority not in own:
            yield issue(
                "priority-above-tier",
                "priority",
                f"{shown(file.priority)} is above the tier of team {file.team}",
                f"must be one of {one_of(own)}",
                "choose one, or remove it to use the tier's default",
            )
