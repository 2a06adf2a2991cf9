"""The preparation that a run's dataset needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from training.spec import Dataset, PreparationResources, RunSpec
from trainyard import hashing
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
        """Folder of the dataset in pods."""
        return Dataset(name=self.dataset).path

    @property
    def state_file(self) -> str:
        """The Job's progress and result; see trainer/prepare/state.py."""
        return f"{self.path}/.preparations/{self.name}.json"
