"""Controllers of a sandbox: charts as elsewhere, on a process node of their own.

Only this differs: one replica, which needs no election, on that node; and the timeouts of gangs, whose pods start
in seconds. Charts come from Go modules, whose values name images of development builds.
"""

from __future__ import annotations

from typing import Any, Final

from infra.addons import jobset, kueue
from infra.addons.kueue_config import Timeouts
from infra.addons.model import Installable
from infra.addons.registry import ADD_ONS
from infra.domain import naming
from infra.kubernetes.helm import merged
from infra.kubernetes.objects import Manifest, metadata

# A Job replaces a lost pod after a backoff of 10 s: the new one must be ready before the gang is evicted.
TIMEOUTS: Final = Timeouts(start=45, recovery=25, backoff_base=1, backoff_max=30)

_SYSTEM: Final = "system"
NODE: Final = f"{_SYSTEM}-0"
_SELECTOR: Final = {naming.POOL: _SYSTEM}
_PINNED: Final[dict[str, dict[str, Any]]] = {
    "kueue": {
        "controllerManager": {
            "nodeSelector": _SELECTOR,
            "readinessProbe": {"initialDelaySeconds": 1, "periodSeconds": 1},
        }
    },
    "jobset": {
        "controller": {
            "replicas": 1,
            "leaderElection": {"enable": False},
            "nodeSelector": _SELECTOR,
        }
    },
}
"""Values of a chart that differ here."""


def plan(add_on: str) -> Installable:
    """Return what a sandbox installs of an add-on."""
    if add_on == "kueue":
        return kueue.plan(kueue.KueueArgs(steered=True, replicas=1, timeouts=TIMEOUTS))
    return jobset.plan()


def chart_values(plan: Installable) -> dict[str, Any]:
    """Return the values of its chart."""
    found = merged(plan.values, _PINNED[plan.add_on])
    for image in ADD_ONS[plan.add_on].images:
        for path in image.values:
            name: dict[str, Any] = {
                "repository": f"{image.registry}/{image.repository}",
                "tag": image.tag,
            }
            for key in reversed(path.split(".")[:-1]):
                name = {key: name}
            found = merged(found, name)
    return found


def system_node() -> Manifest:
    """Return the node of the controllers; others do not tolerate it."""
    resources = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    labels = {**_SELECTOR, naming.NODE_TYPE: _SYSTEM, naming.HOSTNAME: NODE}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata(NODE, labels=labels, annotations={naming.NODE_RUNTIME: "process"}),
        "spec": {"taints": [{"key": "CriticalAddonsOnly", "effect": "NoSchedule"}]},
        "status": {"capacity": resources, "allocatable": resources},
    }
