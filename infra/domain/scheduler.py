"""The schedulers that a stack can choose from.

What else depends on the choice is in two modules that are named after the value: `infra.queueing.kueue` and
`training.gangs.kueue`, for example.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Scheduler(StrEnum):
    """What queues runs and admits their gangs; one for the whole stack."""

    KUEUE = "kueue"
    """Kueue suspends a run until all of it fits its quota; kube-scheduler places the pods."""
    VOLCANO = "volcano"
    """Volcano's scheduler places GPU pods by PodGroup and Queue, instead of kube-scheduler."""
    YUNIKORN = "yunikorn"
    """YuniKorn's scheduler reserves a gang by placeholder pods, in hierarchical queues."""
    NATIVE = "native"
    """kube-scheduler's own gangs, by Kubernetes' PodGroup; without queues."""

    @property
    def has_queues(self) -> bool:
        return self is not Scheduler.NATIVE

    @property
    def packs_by_topology(self) -> bool:
        """Whether queues choose nodes that are near each other."""
        return self is Scheduler.KUEUE

    @property
    def unsupported_launchers(self) -> Mapping[str, str]:
        """Launchers whose gangs the scheduler cannot hold together, and why."""
        return {} if self.has_queues else _NATIVE_UNSUPPORTED


_NATIVE_UNSUPPORTED: Final = dict.fromkeys(
    ("jobset", "trainjob", "pytorchjob", "mpijob"), "its CRD drops the pods' schedulingGroup"
)


DEFAULT_SCHEDULER: Final = Scheduler.KUEUE

MAX_GRACE_S: Final = 600
"""Longest grace period of a pod in a team's namespace, in seconds.

A gang that leaves its nodes saves that long before it starts again, and Kueue must not evict it meanwhile as one
that has lost pods: its recovery timeout is longer (infra/addons/kueue.py).
"""
