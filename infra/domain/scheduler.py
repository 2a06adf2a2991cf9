"""The schedulers that a stack can choose from.

What depends on the choice is in two modules that are named after the value: `infra.queueing.kueue` and
`training.gangs.kueue`, for example.
"""

from __future__ import annotations

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


DEFAULT_SCHEDULER: Final = Scheduler.KUEUE

MAX_GRACE_S: Final = 600
"""Longest grace period of a pod in a team's namespace, in seconds.

A gang that leaves its nodes saves that long before it starts again, and Kueue must not evict it meanwhile as one
that has lost pods: its recovery timeout is longer (infra/addons/kueue_config.py).
"""
