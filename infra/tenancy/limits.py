"""How much a team's namespace may hold, and what a container gets that asks for nothing."""

from __future__ import annotations

from dataclasses import dataclass

from infra.domain import naming
from infra.kubernetes.objects import Manifest, metadata


@dataclass(frozen=True, kw_only=True)
class Quota:
    """The most of a namespace at once (Kubernetes quantities)."""

    cpu: str
    memory: str
    gpus: int


def resource_quota(team: str, quota: Quota, *, of_pods: bool = True) -> Manifest:
    """A hard bound behind the queue: it holds for pods that never queued, too.

    Without `of_pods` it bounds no CPU, memory or GPUs. It counts pods that wait, and where those of
    waiting runs exist, two gangs could each get half of their pods made and wait for ever.
    """
    pods = {
        "requests.cpu": quota.cpu,
        "requests.memory": quota.memory,
        # Extended resources have no limits of their own in a quota: limits == requests.
        f"requests.{naming.GPU}": str(quota.gpus),
    }
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata(
            "training",
            namespace=naming.namespace(team),
            labels=naming.object_labels("limits", team),
        ),
        "spec": {
            "hard": {
                **(pods if of_pods else {}),
                # Runs talk among themselves; nothing of a team is to be reached from outside.
                "services.loadbalancers": "0",
                "services.nodeports": "0",
            }
        },
    }


def limit_range(team: str) -> Manifest:
    """Requests for containers that name none: the quota would refuse them, the queue overlook them."""
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": metadata(
            "defaults",
            namespace=naming.namespace(team),
            labels=naming.object_labels("limits", team),
        ),
        "spec": {
            "limits": [
                {
                    "type": "Container",
                    "defaultRequest": {"cpu": "250m", "memory": "256Mi"},
                    "default": {"cpu": "1", "memory": "1Gi"},
                }
            ]
        },
    }
