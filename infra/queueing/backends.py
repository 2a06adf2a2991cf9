"""The interface of schedulers towards the platform, and the backend of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module

import pulumi

from infra.domain.scheduler import Scheduler
from infra.kubernetes.controller_accounts import KUBE_SCHEDULER
from infra.kubernetes.objects import Manifest
from infra.queueing.quotas import QueuesArgs


@dataclass(frozen=True, kw_only=True)
class TeamQueues:
    cluster_queues: Mapping[str, pulumi.Resource] = field(default_factory=dict)
    """By team, the ClusterQueue that the team's LocalQueue depends on."""
    named_by_runs: tuple[pulumi.Resource, ...] = ()
    """Queues that runs name directly, and so depend on."""


class SchedulerBackend:
    """What a scheduler brings to the platform; the defaults are those of plain kube-scheduler."""

    scheduler: Scheduler
    operator: str = ""
    """Key under the stack file's `operators`; empty: part of Kubernetes."""
    pod_scheduler: str = ""
    """`schedulerName` of GPU pods; empty: Kubernetes' default."""
    pod_group_api: str = ""
    """API group of the PodGroup that each run creates; empty: none."""
    gang_apis: Mapping[str, str] = {}
    """API of PodGroup by Kubernetes version, where Kubernetes itself schedules gangs."""
    holds_pods_back: bool = False
    """Whether a waiting run has no pods yet. Else its pods are pending, and a ResourceQuota counts them."""
    limits_by_pool: bool = False
    """Whether queues know `fairWeight`, `borrowing`, `lending` and `onDemandUsdPerHour`."""
    preemption_policy: str = "Never"
    """`preemptionPolicy` of priority classes."""
    binders: tuple[str, ...] = (KUBE_SCHEDULER,)
    """Users that bind pods to nodes."""
    placeholder_image: str = ""
    """Image, by digest, of pods that the scheduler itself creates in team namespaces."""

    def queue(self, team: str, cohort: str) -> str:
        """Return the name by which runs refer to a team's queue; empty without queues."""
        del team, cohort
        return ""

    def cluster_queue(self, team: str) -> str:
        """Return the name of a team's ClusterQueue; empty where there are none."""
        del team
        return ""

    def deploy(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions) -> TeamQueues:
        del name, args, opts
        return TeamQueues()

    def priority_objects(self, priority: str) -> Mapping[str, Manifest]:
        del priority
        return {}

    def admission_policies(self, taint_key: str, cohort: str) -> list[Manifest]:
        """Return the policies that make GPU pods go through their team's queue."""
        del taint_key, cohort
        return []


def backend(scheduler: Scheduler) -> SchedulerBackend:
    """Return the BACKEND of the module of this package that is named after the scheduler."""
    found: SchedulerBackend = import_module(f"infra.queueing.{scheduler.value}").BACKEND
    return found
