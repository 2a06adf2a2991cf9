"""Whether the names in a run file exist on the platform, and its admission policies allow them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import pydantic

from infra.domain.platform import Platform
from infra.sections.errors import ConfigIssue, did_you_mean, issue, one_of, shown
from infra.sections.types import Image
from infra.tenancy.admission import pods, runs
from training import dataset_checks, spec
from training.launchers import LAUNCHERS
from training.run_schema import RunFile

_IMAGE: Final[pydantic.TypeAdapter[str]] = pydantic.TypeAdapter(Image)
_HASH_PART: Final = len("-v-01234567")


def check_names(
    file: RunFile, platform: Platform, references: Mapping[str, str]
) -> Iterator[ConfigIssue]:
    """Check names against those of the platform, and the length of the run's own."""
    yield from _unknown("team", file.team, platform.teams, "add the team to the stack")
    yield from _unknown("jobKind", file.job_kind, LAUNCHERS, "choose one")
    unsuited = platform.scheduler.unsupported_launchers
    if file.job_kind in LAUNCHERS and file.job_kind not in {*platform.launchers, *unsuited}:
        yield issue(
            "operator-required",
            "jobKind",
            f"{shown(file.job_kind)} needs an operator that the stack does not have",
            f"must be one of {one_of(platform.launchers)}",
            "choose one, or add the operator to the stack's operators",
        )
    if file.priority:
        yield from _unknown("priority", file.priority, platform.priorities, "choose one")
    yield from _secrets(file, platform)
    yield from _gpu_model(file, platform)
    yield from _image(file, references)
    yield from _admission(file, platform, references)
    yield from dataset_checks.check_dataset(file, platform, references)
    groups = file.groups
    suffix = len(spec.group_id("", groups.count - 1)) if groups else 0
    longest = spec.RUN_ID_MAX - _HASH_PART - len(str(file.version)) - suffix
    if len(file.name) > longest:
        yield issue(
            "name-too-long",
            "name",
            f"has {len(file.name)} characters",
            f"must have at most {longest}: names of pods derive from it",
            "shorten it",
        )


def _unknown(path: str, got: str, known: Collection[str], otherwise: str) -> Iterator[ConfigIssue]:
    if got not in known:
        yield issue(
            "unknown-name",
            path,
            f"{shown(got)} does not exist",
            f"must be one of {one_of(known)}",
            did_you_mean(got, known, otherwise),
        )


def _secrets(file: RunFile, platform: Platform) -> Iterator[ConfigIssue]:
    if file.team in platform.teams:
        known = platform.teams[file.team].secrets
        for index, name in enumerate(file.secrets):
            otherwise = f"add it to the secrets of team {file.team}"
            yield from _unknown(f"secrets[{index}]", name, known, otherwise)


def _gpu_model(file: RunFile, platform: Platform) -> Iterator[ConfigIssue]:
    models = {model for pool in platform.pools for model in pool.gpu_models}
    if file.gpu_model and file.gpu_model not in models:
        # Never a guess: a100 and h100 look alike and are not.
        yield issue(
            "unknown-name",
            "gpuModel",
            f"{shown(file.gpu_model)} is not in any pool",
            f"must be one of {one_of(models)}",
            "choose one, or add a pool",
        )


def _image(file: RunFile, references: Mapping[str, str]) -> Iterator[ConfigIssue]:
    if file.image in references:
        return
    try:
        _IMAGE.validate_python(file.image)
    except pydantic.ValidationError:
        yield issue(
            "invalid-image",
            "image",
            f"{shown(file.image)} is not an image of the stack or a reference by digest",
            f"must be one of {one_of(references)}, or REPOSITORY@sha256:DIGEST",
            did_you_mean(file.image, references, "name one, or pin a digest"),
        )


def _admission(
    file: RunFile, platform: Platform, references: Mapping[str, str]
) -> Iterator[ConfigIssue]:
    """Check the image against the stack's registries, and the priority against the team's tier."""
    image = references.get(file.image, file.image)
    # name_checks reports an image without a digest.
    if "@sha256:" in image and not re.fullmatch(pods.pattern(platform.registries), image):
        yield issue(
            "registry-not-allowed",
            "image",
            f"{shown(image.partition('@')[0])} is not from a registry of the stack",
            f"must be from {one_of(platform.registries)}",
            "push it there, or add its registry to the stack's registries",
        )
    if file.team in platform.teams and file.priority in platform.priorities:
        tier = platform.teams[file.team].tier
        own = runs.allowed(platform.priorities, platform.default_priority)[tier]
        if file.priority not in own:
            yield issue(
                "priority-above-tier",
                "priority",
                f"{shown(file.priority)} is above the tier of team {file.team}",
                f"must be one of {one_of(own)}",
                "choose one, or remove it to use the tier's default",
            )
