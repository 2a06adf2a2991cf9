"""Who starts a run's pods together: the choice, and what follows from it wherever it matters."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from infra.domain import naming


class Scheduler(StrEnum):
    """What queues runs and admits their gangs; one for the whole stack."""

    KUEUE = "kueue"
    """Kueue holds a run back until all of it fits its quota; kube-scheduler places the pods."""
    VOLCANO = "volcano"
    """Volcano's scheduler places GPU pods by PodGroup and Queue, instead of kube-scheduler."""
    YUNIKORN = "yunikorn"
    """YuniKorn's scheduler reserves a gang by placeholder pods, in hierarchical queues."""
    NATIVE = "native"
    """kube-scheduler's own gangs, by Kubernetes' PodGroup; nothing queues."""

    @property
    def has_queues(self) -> bool:
        """Whether teams have queues with guarantees and limits."""
        return self is not Scheduler.NATIVE

    @property
    def holds_pods_back(self) -> bool:
        """Whether a waiting run has no pods yet. Elsewhere its pods exist, pending, and a
        ResourceQuota counts them."""
        return self is Scheduler.KUEUE

    @property
    def operator(self) -> str | None:
        """Its name among the stack file's `operators`; None: a part of Kubernetes."""
        return self.value if self.has_queues else None

    @property
    def pod_scheduler(self) -> str | None:
        """`schedulerName` of GPU pods; None: Kubernetes' default."""
        return self.value if self in (Scheduler.VOLCANO, Scheduler.YUNIKORN) else None

    @property
    def pod_groups(self) -> str:
        """API group of the PodGroup that a run brings; empty where it brings none."""
        groups = {
            Scheduler.VOLCANO: "scheduling.volcano.sh",
            Scheduler.NATIVE: "scheduling.k8s.io",
        }
        return groups.get(self, "")

    def queue(self, team: str, cohort: str) -> str:
        """What a team's queue is called where runs name it; empty where there is none."""
        return {
            Scheduler.KUEUE: naming.local_queue(team),
            Scheduler.VOLCANO: naming.cluster_queue(team),
            Scheduler.YUNIKORN: f"root.{cohort}.{team}",
            Scheduler.NATIVE: "",
        }[self]


NATIVE_GANG_APIS: Final[Mapping[str, str]] = {
    "1.36": "scheduling.k8s.io/v1alpha2",
    "1.37": "scheduling.k8s.io/v1beta1",
}
"""By Kubernetes version, the API of PodGroup that pods name in `spec.schedulingGroup`.

Off unless the feature gates GenericWorkload and GangScheduling are on and the API is served. 1.35 had
another form, which 1.36 dropped.
"""

_DROPPED: Final = (
    "native, whose group in a pod's spec is not in the definition of such objects and is dropped"
)

YUNIKORN_QUEUE: Final = "yunikorn.apache.org/queue"
"""Label of pods: the queue that they count in. YuniKorn reads it before any other of its names for it."""

UNSUITED: Final[Mapping[Scheduler, Mapping[str, str]]] = {
    Scheduler.NATIVE: dict.fromkeys(("jobset", "trainjob", "pytorchjob", "mpijob"), _DROPPED)
}
"""Launchers whose gangs a scheduler cannot hold together, and why."""
