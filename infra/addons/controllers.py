"""Values that controllers of add-ons share: replicas, scheduling, Pod Security, resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest, manifest

REPLICAS: Final = 2
"""One leads, the other takes over when its node fails."""

PRIORITY: Final = "system-cluster-critical"
"""A webhook that cannot be scheduled blocks all requests that it reviews."""

NODE_PRIORITY: Final = "system-node-critical"
"""For what runs on each node."""

DISRUPTION_BUDGET: Final = {"enabled": True, "minAvailable": 1}
"""Value of `podDisruptionBudget` in most charts."""


def pod_security(level: str) -> dict[str, str]:
    """Return namespace labels that enforce a Pod Security Standard: restricted, baseline or privileged."""
    prefix = "pod-security.kubernetes.io"
    return {f"{prefix}/enforce": level, f"{prefix}/enforce-version": "latest"}


def resources(cpu: str, memory: str) -> dict[str, Any]:
    """Return requests and a memory limit; CPU has no limit."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}


def chart_resources(cpu: str, memory: str) -> dict[str, Any]:
    """Return `resources` for a chart that limits the CPU by default: Helm merges values, and null removes one."""
    found = resources(cpu, memory)
    return {**found, "limits": {**found["limits"], "cpu": None}}


def anti_affinity(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return an `affinity` that prefers separate nodes for replicas."""
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": naming.HOSTNAME}
    preferred = {"weight": 100, "podAffinityTerm": term}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}


def topology_spread(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return `topologySpreadConstraints` with the same effect, for charts that support those."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": naming.HOSTNAME,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(labels)},
        }
    ]


def disruption_budget(name: str, namespace: str, labels: Mapping[str, str]) -> Manifest:
    """Return a PodDisruptionBudget for charts without one."""
    return manifest(
        "policy/v1/PodDisruptionBudget",
        name,
        "operators",
        namespace=namespace,
        spec={"minAvailable": 1, "selector": {"matchLabels": dict(labels)}},
    )
