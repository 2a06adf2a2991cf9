"""The model that a run starts from, where it is not a folder yet: `model.path` of its configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.domain.platform import Platform
from infra.sections.errors import ConfigIssue, issue, shown
from trainer.weights.reference import (
    ENDPOINT_ENV,
    FOLDER,
    TOKEN_ENV,
    BadReference,
    HubModel,
    is_remote,
    parse_reference,
)
from training import bucket_checks
from training.spec import PreparationResources, RunSpec
from trainyard import hashing

_HASH_CHARS: Final = 8
_REVISION: Final = 1
"""Incremented when the Job changes, so that an update creates another one."""
_PATH: Final = "config: model.path"
_RESOURCES: Final = PreparationResources(cpu="1", memory="1Gi")
"""Up to four connections at a time, and the hashes of what they bring."""


@dataclass(frozen=True, kw_only=True)
class WeightsFetch:
    """One model of one team, fetched by one image: equal ones are fetched once."""

    team: str
    source: str
    """A reference: trainer/weights/reference.py."""
    image: str
    secrets: tuple[str, ...] = ()
    """Team secrets with the credentials of an S3 location; the Job finds a hub's token itself."""
    resources: PreparationResources = _RESOURCES

    @classmethod
    def for_run(cls, run: RunSpec) -> WeightsFetch | None:
        """Return what a run needs; None when its model is a folder, or made by itself."""
        if not run.weights:
            return None
        from_hub = isinstance(parse_reference(run.weights), HubModel)
        secrets = () if from_hub else run.secrets
        return cls(team=run.team, source=run.weights, image=run.image, secrets=secrets)

    @property
    def name(self) -> str:
        """Name of the Job, derived from its contents: a Job's template cannot change."""
        amounts = [self.resources.cpu, self.resources.memory]
        parts = [self.team, self.source, self.image, list(self.secrets), amounts, _REVISION]
        return f"fetch-weights-{hashing.content_hash(parts)[:_HASH_CHARS]}"

    @property
    def path(self) -> str:
        """Folder of the model in pods."""
        return parse_reference(self.source).folder

    @property
    def state_file(self) -> str:
        """The Job's progress and result; see trainer/prepare/state.py."""
        return f"{FOLDER}/.fetches/{self.name}.json"

    def variables(self, known: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
        """Return the team secret of each variable that the Job gets: no other ones."""
        if isinstance(parse_reference(self.source), HubModel):
            wanted = {TOKEN_ENV, ENDPOINT_ENV}
            return {v: name for name in sorted(known) for v in known[name] if v in wanted}
        return {v: name for name in self.secrets for v in known[name] if v.startswith("AWS_")}


def separate(settings: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the trainer's settings with the folder of a model that is fetched, and its reference.

    The reference is empty if there is nothing to fetch. For an invalid one the folder is that of all models.
    """
    model = settings.get("model")
    path = model.get("path") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(path, str) or not is_remote(path):
        return dict(settings), ""
    try:
        folder = parse_reference(path).folder
    except BadReference:
        folder = FOLDER
    return {**settings, "model": {**model, "path": folder}}, path


def check_reference(settings: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """Check the form of a model's reference."""
    _, source = separate(settings)
    try:
        if source:
            parse_reference(source)
    except BadReference:
        yield issue(
            "invalid-reference",
            _PATH,
            f"{shown(source)} is not a model",
            "must be an absolute folder, s3://BUCKET/PREFIX, or hub:ORG/NAME@COMMIT with the 40 hexadecimal "
            "digits of a commit: branches and tags move",
            "correct it",
        )


def check_on_platform(
    settings: Mapping[str, Any], team: str, platform: Platform
) -> Iterator[ConfigIssue]:
    """Check that the team's pods can reach a model's place. `settings` have passed `check_reference`."""
    _, source = separate(settings)
    if not source:
        return
    if not isinstance(parse_reference(source), HubModel):
        yield from bucket_checks.check_bucket(_PATH, source, team, platform)
    elif not platform.egress_cidrs:
        yield issue(
            "unreachable",
            _PATH,
            "the network policies of team namespaces block the hub",
            "requires egressCidrs in the stack file that contain it",
            "add its addresses, or copy the model to the team's volume and name its folder",
        )
