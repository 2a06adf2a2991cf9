"""What the walls around a team's namespace would refuse of a run, said before it is created."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.config.mistakes import Mistake, one_of, shown
from infra.domain import naming
from infra.domain.platform import Platform
from infra.tenancy.admission import images, priorities
from training.deployment.run_schema import RunFile


def endpoint(settings: Mapping[str, Any]) -> Iterator[Mistake]:
    """A port for Prometheus of the run's own, which no scraper is let in on."""
    report = settings.get("report")
    for key in ("prometheus_port", "prometheus_address"):
        if isinstance(report, Mapping) and key in report:
            yield Mistake(
                path=f"config: report.{key}",
                got=shown(report[key]),
                allowed=f"nothing, for the platform has every run answer on port {naming.METRICS_PORT}",
                remedy="remove it",
            )


def refused(file: RunFile, platform: Platform, references: Mapping[str, str]) -> Iterator[Mistake]:
    """An image from elsewhere than the stack allows; a priority above the team's tier."""
    image = references.get(file.image, file.image)
    # One that has no digest is a mistake of its own.
    if "@sha256:" in image and not re.fullmatch(images.pattern(platform.registries), image):
        yield Mistake(
            path="image",
            got=shown(image.partition("@")[0]),
            allowed=f"images from {one_of(platform.registries)}",
            remedy="push it there, or add its registry to the stack's registries",
        )
    if file.team in platform.teams and file.priority in platform.priorities:
        tier = platform.teams[file.team].tier
        own = priorities.allowed(platform.priorities, platform.default_priority)[tier]
        if file.priority not in own:
            yield Mistake(
                path="priority",
                got=f"{shown(file.priority)}, which is above the team's tier",
                allowed=one_of(own),
                remedy="choose one, or leave it to the tier",
            )
