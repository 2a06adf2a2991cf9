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

    def run_labels(self, run: RunSpec, platform: Platform) -> dict[str, str]:
        """Return labels of the run's own object."""
        del run, platform
        return {}

    def topology(
        self, run: RunSpec, platform: Platform, pools: tuple[NodePool, ...]
    ) -> dict[str, str]:
        """Return pod annotations that ask for nodes near each other."""
        del run, platform, pools
        return {}

    def membership(
        self,
        run: RunSpec,
        platform: Platform,
        pod: Mapping[str, Any],
        requests: Mapping[str, str],
    ) -> Membership:
        """Return what a template with this pod spec gains; `requests` are those of a worker."""
        del run, platform, pod, requests
        return Membership()

    def groups(
        self,
        run: RunSpec,
        platform: Platform,
        labels: Mapping[str, str],
        requests: Mapping[str, str],
    ) -> list[Manifest]:
        """Return objects that stand for the gang, with these labels; they are created before the run."""
        del run, platform, labels, requests
        return []


def gang_backend(scheduler: Scheduler) -> GangBackend:
    """Return the BACKEND of the module of this package that is named after the scheduler."""
    found: GangBackend = import_module(f"training.gangs.{scheduler.value}").BACKEND
    return found


def pod_group(
    api: str,
    run: RunSpec,
    platform: Platform,
    labels: Mapping[str, str],
    spec: Mapping[str, Any],
) -> Manifest:
    """Return the PodGroup of a run."""
    return {
        "apiVersion": api,
        "kind": "PodGroup",
        "metadata": metadata(
            run.run_id, namespace=platform.teams[run.team].namespace, labels=labels
        ),
        "spec": dict(spec),
    }
