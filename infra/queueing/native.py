"""Kubernetes' own gangs: pods name a PodGroup, and nothing queues."""

from __future__ import annotations

from typing import Final

from infra.domain.scheduler import Scheduler
from infra.queueing.backends import SchedulerBackend

_GANG_APIS: Final = {"1.36": "scheduling.k8s.io/v1alpha2", "1.37": "scheduling.k8s.io/v1beta1"}
"""Off unless the feature gates are on and the API is served. 1.35 had another form, which 1.36 dropped."""


class NativeBackend(SchedulerBackend):
    """kube-scheduler with the feature gates GenericWorkload and GangScheduling."""

    scheduler = Scheduler.NATIVE
    pod_group_api = "scheduling.k8s.io"
    gang_apis = _GANG_APIS


BACKEND: Final = NativeBackend()
