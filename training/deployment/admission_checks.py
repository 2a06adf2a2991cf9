"""Checks of a run against the admission policies of its team's namespace, before it is created."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.config.errors import ConfigIssue, one_of, shown
from infra.domain import naming
from infra.domain.platform import Platform
from infra.tenancy.admission import images, priorities
from training.deployment.run_schema import RunFile


def check_metrics_endpoint(settings: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """A port for Prometheus of the run's own, which no scraper is let in on."""
    report = settings.get("report")
    for key in ("prometheus_port", "prometheus_address"):
        if isinstance(report, Mapping) and key in report:
            yield ConfigIssue(
                path=f"config: report.{key}",
                problem=f"got {shown(report[key])}",
                valid=f"allowed nothing, for the platform has every run answer on port {naming.METRICS_PORT}",
                action="remove it",
            )


def check_admission(
    file: RunFile, platform: Platform, references: Mapping[str, str]
) -> Iterator[ConfigIssue]:
    """An image from elsewhere than the stack allows; a priority above the team's tier."""
    image = references.get(file.image, file.image)
    # One that has no digest is a mistake of its own.
    if "@sha256:" in image and not re.fullmatch(images.pattern(platform.registries), image):
        yield ConfigIssue(
            path="image",
            problem="got " + shown(image.partition("@")[0]),
            valid=f"allowed images from {one_of(platform.registries)}",
            action="push it there, or add its registry to the stack's registries",
        )
    if file.team in platform.teams and file.priority in platform.priorities:
        tier = platform.teams[file.team].tier
        own = priorities.allowed(platform.priorities, platform.default_priority)[tier]
        if file.priority not in own:
            yield ConfigIssue(
                path="priority",
                problem=f"got {shown(file.priority)}, which is above the team's tier",
                valid=f"allowed {one_of(own)}",
                action="choose one, or leave it to the tier",
            )
