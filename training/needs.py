"""What must be on the team's volume before a run starts, and the init containers that wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.domain import naming
from training.spec import Dataset, PreparationResources, RunSpec
from training.weights import WeightsFetch
from trainyard import contract, hashing
from trainyard.objects.location import is_location

_HASH_CHARS: Final = 8
_REVISION: Final = 3
"""Incremented when the Job changes, so that an update creates another one."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """One dataset of one team, prepared by one image: equal preparations run once."""

    team: str
    dataset: str
    source: str
    image: str
    format: str = ""
    column: str = ""
    tokenizer: str = ""
    secrets: tuple[str, ...] = ()
    """Team secrets with the credentials of an S3 source."""
    resources: PreparationResources = field(default_factory=PreparationResources)

    @classmethod
    def for_run(cls, run: RunSpec) -> Preparation | None:
        """Return the preparation that a run needs; None when its dataset has no source."""
        dataset = run.dataset
        if not dataset.source:
            return None
        return cls(
            team=run.team,
            dataset=dataset.name,
            source=dataset.source,
            image=dataset.image or run.image,
            format=dataset.format,
            column=dataset.column,
            tokenizer=dataset.tokenizer,
            secrets=run.secrets if is_location(dataset.source) else (),
            resources=dataset.resources,
        )

    @property
    def name(self) -> str:
        """Name of the Job, derived from its contents: a Job's template cannot change."""
        amounts = [self.resources.cpu, self.resources.memory]
        read = [self.source, self.format, self.column, self.tokenizer, list(self.secrets)]
        parts = [self.team, self.dataset, read, self.image, amounts, _REVISION]
        return f"prepare-{self.dataset}-{hashing.content_hash(parts)[:_HASH_CHARS]}"

    @property
    def path(self) -> str:
        return Dataset(name=self.dataset).path

    @property
    def state_file(self) -> str:
        """The Job's progress and result; see trainer/prepare/state.py."""
        return f"{self.path}/.preparations/{self.name}.json"


Need = Preparation | WeightsFetch
_REQUESTS: Final = {"cpu": "100m", "memory": "128Mi"}


def needs(run: RunSpec) -> list[Need]:
    """Return what Jobs bring to the volume for a run; runs share equal ones."""
    found = (Preparation.for_run(run), WeightsFetch.for_run(run))
    return [one for one in found if one is not None]


def container_name(need: Need) -> str:
    return naming.DATASET_CONTAINER if isinstance(need, Preparation) else naming.WEIGHTS_CONTAINER


def init_containers(run: RunSpec, security: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a container for each need, which ends when the need is met."""
    return [_waiting(need, security) for need in needs(run)]


def _waiting(need: Need, security: Mapping[str, Any]) -> dict[str, Any]:
    what = [] if isinstance(need, Preparation) else ["--what", "model"]
    return {
        "name": container_name(need),
        "image": need.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            *("python", "-m", "trainer.prepare.wait", *what),
            *("--state", need.state_file),
        ],
        "workingDir": contract.WORKSPACE,
        "env": [
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": naming.PREPARATION_ENV, "value": need.name},
        ],
        "resources": {"requests": dict(_REQUESTS), "limits": dict(_REQUESTS)},
        "volumeMounts": [{"name": "datasets", "mountPath": contract.DATA_MOUNT, "readOnly": True}],
        "securityContext": dict(security),
    }
