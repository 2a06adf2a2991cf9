"""What a scheduler needs on a run's objects to treat its pods as one gang, and the backend of each scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from infra.domain.platform import Platform
from infra.domain.pools import NodePool
from infra.domain.scheduler import Scheduler
from infra.kubernetes.objects import Manifest, metadata
from training.spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class Gang:
    """A run on the platform, as backends see it."""

    run: RunSpec
    platform: Platform
    requests: Mapping[str, str]
    """Of a worker."""

    @property
    def queue(self) -> str:
        return self.platform.teams[self.run.team].local_queue

    @property
    def priority(self) -> str:
        return self.run.priority or self.platform.default_priority[self.run.tier]

    def group(self, api: str, labels: Mapping[str, str], spec: Mapping[str, Any]) -> Manifest:
        """Return the PodGroup of the run."""
        home = self.platform.teams[self.run.team].namespace
        return {
            "apiVersion": api,
            "kind": "PodGroup",
            "metadata": metadata(self.run.run_id, namespace=home, labels=labels),
            "spec": dict(spec),
        }


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Additions to a pod template."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)


class GangBackend:
    """What a scheduler needs of a run; the defaults are those of a scheduler that reads pods only."""

    keeps_max_hours: bool = False
    """Whether it ends a run after its `maxHours`."""
    admits_groups: bool = False
    """Whether it admits each group of a run by itself."""
    keeps_zone: bool = False
    """Whether it keeps a gang in one zone."""
    orders_pools: bool = False
    """Whether its queues try a tier's preferred capacity first; else pods ask for it by affinity."""
    worker_annotations: tuple[str, ...] = ()
    """Annotations that pods of a gang without GPUs, such as mpirun's, must not have."""

    def run_labels(self, gang: Gang) -> dict[str, str]:
        """Return labels of the run's own object."""
        del gang
        return {}

    def topology(self, run: RunSpec, pools: tuple[NodePool, ...]) -> dict[str, str]:
        """Return pod annotations that ask for nodes near each other."""
        del run, pools
        return {}

    def membership(self, gang: Gang, pod: Mapping[str, Any]) -> Membership:
        """Return what a template with this pod spec gains."""
        del gang, pod
        return Membership()

    def groups(self, gang: Gang, labels: Mapping[str, str]) -> list[Manifest]:
        """Return objects that stand for the gang, with these labels; they are created before the run."""
        del gang, labels
        return []


def gang_backend(scheduler: Scheduler) -> GangBackend:
    """Return the BACKEND of the module of this package that is named after the scheduler."""
    found: GangBackend = import_module(f"training.gangs.{scheduler.value}").BACKEND
    return found
