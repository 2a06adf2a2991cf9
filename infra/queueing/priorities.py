"""Who goes first: one class per kind of run, for Kueue's queues and for the scheduler alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pulumi

from infra.domain import naming
from infra.domain.scheduler import Scheduler
from infra.kubernetes.objects import KubernetesObject, Manifest, metadata

PRIORITIES: Final[Mapping[str, int]] = {
    "production-training": 100_000,
    "research-training": 1_000,
    "best-effort-training": 100,
}
"""Name and value; a higher value is admitted first and may preempt a lower one."""

_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "production-training": "Approved production training runs.",
    "research-training": "Research runs; the usual class.",
    "best-effort-training": "Runs that may wait for and yield to every other run.",
}


_PREEMPTING: Final = (Scheduler.VOLCANO, Scheduler.YUNIKORN)


def priority_class(name: str, scheduler: Scheduler = Scheduler.KUEUE) -> Manifest:
    """The scheduler's class.

    kube-scheduler never preempts by it: it would take single pods out of a gang. Kueue preempts whole
    runs. Volcano and YuniKorn take lent nodes back only for pods whose class lets them preempt.
    """
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata(name, labels=naming.object_labels("priorities")),
        "value": PRIORITIES[name],
        "globalDefault": False,
        "preemptionPolicy": "PreemptLowerPriority" if scheduler in _PREEMPTING else "Never",
        "description": _DESCRIPTIONS[name],
    }


def workload_priority_class(name: str) -> Manifest:
    """Kueue's class of the same name and value."""
    return {
        "apiVersion": naming.KUEUE_API,
        "kind": "WorkloadPriorityClass",
        "metadata": metadata(name, labels=naming.object_labels("priorities")),
        "value": PRIORITIES[name],
        "description": _DESCRIPTIONS[name],
    }


class Priorities(pulumi.ComponentResource):
    """All priority classes."""

    def __init__(self, name: str, scheduler: Scheduler, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("Priorities"), name, None, opts)
        for priority in PRIORITIES:
            own = pulumi.ResourceOptions(parent=self)
            KubernetesObject(f"{name}-{priority}", priority_class(priority, scheduler), own)
            if scheduler is Scheduler.KUEUE:
                workload = workload_priority_class(priority)
                KubernetesObject(f"{name}-{priority}-workload", workload, own)
        self.register_outputs({"names": list(PRIORITIES)})
