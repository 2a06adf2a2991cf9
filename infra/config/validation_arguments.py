"""Conversion of the stack file to the arguments of node checks."""

from __future__ import annotations

from collections.abc import Mapping

from infra.config import platform_record
from infra.config.model import StackConfig
from infra.domain.platform import Platform
from infra.validation.component import ValidationArgs


def validation(
    config: StackConfig, platform: Platform, images: Mapping[str, str]
) -> ValidationArgs | None:
    """Where the stack wants them. `images`: its images by name, every reference by digest."""
    section = config.validation
    if section is None:
        return None
    return ValidationArgs(
        platform=platform,
        operators=tuple(sorted(platform_record.present_operators(config))),
        image=images.get(section.image, section.image),
        signed_images=config.signatures is not None,
        weekly=section.weekly,
        min_gbps=section.min_gbps,
    )
