"""Whether the names in a run file exist on the platform."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import pydantic

from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown
from infra.config.types import Image
from infra.domain.platform import Platform
from infra.queueing.backends import backend
from training import spec
from training.deployment import admission_checks
from training.deployment.launchers import LAUNCHERS
from training.deployment.run_schema import RunFile
from training.prepare.source import STDLIB

_IMAGE: Final[pydantic.TypeAdapter[str]] = pydantic.TypeAdapter(Image)
_DATASET_VERSION: Final = re.compile(r"[0-9a-f]{16}")
_HASH_PART: Final = len("-v-01234567")


def check_names(
    file: RunFile, platform: Platform, references: Mapping[str, str]
) -> Iterator[ConfigIssue]:
    """Names that the platform does not have, and a name that is too long for a run id."""
    yield from _unknown("team", file.team, platform.teams, "add the team to the stack")
    yield from _unknown("launcher", file.launcher, LAUNCHERS, "choose one")
    unsuited = backend(platform.scheduler).unsupported_launchers
    if file.launcher in LAUNCHERS and file.launcher not in {*platform.launchers, *unsuited}:
        yield ConfigIssue(
            path="launcher",
            problem=f"got {shown(file.launcher)}, whose operator the stack lacks",
            valid=f"allowed {one_of(platform.launchers)}",
            action="choose one, or add the operator to the stack's operators",
        )
    if file.priority:
        yield from _unknown("priority", file.priority, platform.priorities, "choose one")
    yield from _secrets(file, platform)
    yield from _gpu_model(file, platform)
    yield from _image(file, references)
    yield from admission_checks.check_admission(file, platform, references)
    yield from _dataset(file)
    longest = spec.RUN_ID_MAX - _HASH_PART - len(str(file.version))
    if len(file.name) > longest:
        yield ConfigIssue(
            path="name",
            problem=f"got {len(file.name)} characters",
            valid=f"allowed at most {longest}, for names of pods are made from it",
            action="shorten it",
        )


def _unknown(path: str, got: str, known: Collection[str], otherwise: str) -> Iterator[ConfigIssue]:
    if got not in known:
        yield ConfigIssue(
            path=path,
            problem=f"got {shown(got)}",
            valid=f"allowed {one_of(known)}",
            action=did_you_mean(got, known, otherwise),
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
        yield ConfigIssue(
            path="gpuModel",
            problem=f"got {shown(file.gpu_model)}",
            valid=f"allowed {one_of(models)}",
            action="choose one, or add a pool",
        )


def _image(file: RunFile, references: Mapping[str, str]) -> Iterator[ConfigIssue]:
    if file.image in references:
        return
    try:
        _IMAGE.validate_python(file.image)
    except pydantic.ValidationError:
        yield ConfigIssue(
            path="image",
            problem=f"got {shown(file.image)}",
            valid=f"allowed {one_of(references)}, or REPOSITORY@sha256:DIGEST",
            action=did_you_mean(file.image, references, "name one, or pin a digest"),
        )


def _dataset(file: RunFile) -> Iterator[ConfigIssue]:
    source, version = file.dataset.source, file.dataset.version
    if source and source != STDLIB and not source.startswith("/"):
        yield ConfigIssue(
            path="dataset.source",
            problem=f"got {shown(source)}",
            valid=f"allowed {STDLIB}, or the absolute path of a folder in the image or the data volume",
            action=did_you_mean(source, [STDLIB], "write the whole path"),
        )
    if version != spec.LATEST and not _DATASET_VERSION.fullmatch(version):
        yield ConfigIssue(
            path="dataset.version",
            problem=f"got {shown(version)}",
            valid=f"allowed {spec.LATEST}, or 16 hexadecimal digits",
            action="copy it from the dataset's folder, or leave it out",
        )
