"""ResourceQuota and LimitRange of a team's namespace."""

from __future__ import annotations

from infra.domain import naming
from infra.kubernetes.objects import Manifest, in_team
from infra.sections.teams import QuotaConfig


def _counts(objects: int) -> dict[str, str]:
    """Kinds of operators are left out: until the quota's controller has discovered a kind it rejects all of it,
    for minutes after the operator was installed. JobSets are bounded by their Jobs."""
    return {f"count/{kind}": str(objects) for kind in ("configmaps", "services", "jobs.batch")}


def resource_quota(team: str, quota: QuotaConfig, *, of_pods: bool = True) -> Manifest:
    """Return a hard limit that also holds for pods that were never queued.

    Without `of_pods` it does not limit CPU, memory or GPUs: it counts pending pods, so where waiting runs have
    pods, two gangs could each get half of theirs created and wait forever.
    """
    pods = {
        "requests.cpu": quota.cpu,
        "requests.memory": quota.memory,
        # Extended resources have no limits of their own in a quota: limits == requests.
        f"requests.{naming.GPU}": str(quota.gpus),
    }
    return in_team(
        "v1/ResourceQuota",
        "training",
        "limits",
        team,
        spec={
            "hard": {
                **(pods if of_pods else {}),
                **_counts(quota.objects),
                # Pods of runs talk to each other; nothing of a team is reachable from outside.
                "services.loadbalancers": "0",
                "services.nodeports": "0",
            }
        },
    )


def dev_pod_quota(team: str, number: int) -> Manifest:
    """Return a hard limit of dev pods at a time: they are the pods with a deadline of their own."""
    return in_team(
        "v1/ResourceQuota",
        naming.DEV_QUOTA,
        "limits",
        team,
        spec={"hard": {"pods": str(number)}, "scopes": ["Terminating"]},
    )


def limit_range(team: str) -> Manifest:
    """Return default requests; without them the quota rejects a container and the queue ignores it."""
    return in_team(
        "v1/LimitRange",
        "defaults",
        "limits",
        team,
        spec={
            "limits": [
                {
                    "type": "Container",
                    "defaultRequest": {"cpu": "250m", "memory": "256Mi"},
                    "default": {"cpu": "1", "memory": "1Gi"},
                }
            ]
        },
    )
