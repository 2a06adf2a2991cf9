"""The process node of controllers that are pods; others do not tolerate it."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest, metadata

_SYSTEM: Final = "system"
NODE: Final = f"{_SYSTEM}-0"


def system_node() -> Manifest:
    resources = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    labels = {naming.POOL: _SYSTEM, naming.NODE_TYPE: _SYSTEM, naming.HOSTNAME: NODE}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata(NODE, labels=labels, annotations={naming.NODE_RUNTIME: "process"}),
        "spec": {"taints": [{"key": "CriticalAddonsOnly", "effect": "NoSchedule"}]},
        "status": {"capacity": resources, "allocatable": resources},
    }
