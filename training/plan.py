"""The plan of a deployment: the stack's configuration, its Platform record and its runs, all checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra.config import ConfigError, ConfigIssue, StackConfig, parse, placeholders, platform_record
from infra.domain.platform import Platform
from training import image_capabilities, run_files
from training.spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is deployed."""

    config: StackConfig
    platform: Platform
    images: Mapping[str, str]
    """References by digest, by the names of the stack file."""
    runs: list[RunSpec]
    placeholders: tuple[ConfigIssue, ...] = ()
    """Placeholders of the committed files that are left; only a preview has any."""


def make(values: Mapping[str, Any], stack: str, root: Path, *, preview: bool) -> Plan:
    """Return the plan for a stack file's values, in the project at `root`.

    `preview`: placeholders of the committed files are valid.

    Raises ConfigError with the issues of the stack and of its runs. Runs of an invalid stack are checked as far
    as possible without the Platform record.
    """
    unset = placeholders.find_placeholders(values)
    try:
        config = parse(values)
        if unset and not preview:
            raise ConfigError([])
    except ConfigError as error:
        issues = [
            *error.issues,
            *(() if preview else unset),
            *_run_issues(values.get("runs"), root),
        ]
        raise ConfigError(issues) from None
    config = _pinned(config, root)
    references = run_files.images(config.images, root)
    labels = image_capabilities.labels_of(references.values(), root)
    platform = replace(platform_record.platform(config, stack), image_labels=labels)
    runs = run_files.load(config.runs, platform, references, root)
    return Plan(
        config=config, platform=platform, images=references, runs=runs, placeholders=tuple(unset)
    )


def _pinned(config: StackConfig, root: Path) -> StackConfig:
    """Return the configuration with images of this checkout, which add-ons run, too, by digest."""
    found: dict[str, Any] = {"images": run_files.images(config.images, root)}
    if section := config.elastic_runs:
        [image] = run_files.images({"": section.image}, root).values()
        found["elastic_runs"] = section.model_copy(update={"image": image})
    return config.model_copy(update=found)


def _run_issues(listed: Any, root: Path) -> tuple[ConfigIssue | str, ...]:
    if not isinstance(listed, list):
        return ()
    try:
        run_files.load([name for name in listed if isinstance(name, str)], None, {}, root)
    except ConfigError as error:
        return error.issues
    return ()
