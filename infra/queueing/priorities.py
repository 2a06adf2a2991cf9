"""Priority classes: one per kind of run, for queues and scheduler alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pulumi

from infra.domain import naming
from infra.kubernetes.objects import Manifest, manifest
from infra.kubernetes.resources import KubernetesObject
from infra.queueing.backends import SchedulerBackend

PRIORITIES: Final[Mapping[str, int]] = {
    "production-training": 100_000,
    "research-training": 1_000,
    "best-effort-training": 100,
}
"""Name and value; a higher value is admitted first and may preempt a lower one."""

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "production-training": "Approved production training runs.",
    "research-training": "Research runs; the usual class.",
    "best-effort-training": "Runs that may wait for and yield to every other run.",
}


def priority_class(name: str, preemption_policy: str = "Never") -> Manifest:
    """Return the PriorityClass.

    By default it never preempts: kube-scheduler would evict single pods of a gang. Kueue preempts whole runs.
    """
    return manifest(
        "scheduling.k8s.io/v1/PriorityClass",
        name,
        "priorities",
        value=PRIORITIES[name],
        globalDefault=False,
        preemptionPolicy=preemption_policy,
        description=DESCRIPTIONS[name],
    )


class Priorities(pulumi.ComponentResource):
    def __init__(self, name: str, backend: SchedulerBackend, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("Priorities"), name, None, opts)
        for priority in PRIORITIES:
            own = pulumi.ResourceOptions(parent=self)
            manifest = priority_class(priority, backend.preemption_policy)
            KubernetesObject(f"{name}-{priority}", manifest, own)
            for suffix, manifest in backend.priority_objects(priority).items():
                KubernetesObject(f"{name}-{priority}-{suffix}", manifest, own)
        self.register_outputs({"names": list(PRIORITIES)})
