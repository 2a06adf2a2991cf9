"""What the controllers of add-ons have in common: where they run, how they are spread, what they may not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest, metadata

REPLICAS: Final = 2
"""One leads, the other takes over when its node goes."""

PRIORITY: Final = "system-cluster-critical"
"""A webhook that has no room would stop everything that asks it."""

TOLERATIONS: Final = ({"key": "CriticalAddonsOnly", "operator": "Exists"},)
"""Clusters that keep nodes for what the cluster itself needs taint them so."""

DISRUPTION_BUDGET: Final = {"enabled": True, "minAvailable": 1}
"""As most charts write it."""


def pod_security(level: str) -> dict[str, str]:
    """Labels of a namespace whose pods keep to a Pod Security Standard: restricted, baseline or privileged."""
    prefix = "pod-security.kubernetes.io"
    return {f"{prefix}/enforce": level, f"{prefix}/enforce-version": "latest"}


def resources(cpu: str, memory: str) -> dict[str, Any]:
    """Requests, and a limit on memory; CPU is bounded by what others ask for."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}


def anti_affinity(labels: Mapping[str, str]) -> dict[str, Any]:
    """`affinity` of replicas that would rather not share a node."""
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": naming.HOSTNAME}
    preferred = {"weight": 100, "podAffinityTerm": term}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}


def topology_spread(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """`topologySpreadConstraints` to the same end, for charts that take those."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": naming.HOSTNAME,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(labels)},
        }
    ]


def disruption_budget(name: str, namespace: str, labels: Mapping[str, str]) -> Manifest:
    """A PodDisruptionBudget, where the chart has none."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(name, namespace=namespace, labels=naming.object_labels("operators")),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": dict(labels)}},
    }
