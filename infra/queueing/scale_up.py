"""Nodes for a whole gang before it is admitted: Kueue asks Cluster Autoscaler by ProvisioningRequest.

Pods of a gang that start one by one would make the autoscaler buy nodes for a gang that may never be whole.
With this check, a run that has its quota waits until the autoscaler has found room for all of its pods, or made
it; only then are they created. Karpenter knows no such requests, so its pools have no check.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pulumi

from infra.domain import naming
from infra.domain.pools import NodePool, Nodes, Workload
from infra.kubernetes.objects import KubernetesObject, Manifest, metadata

CHECK: Final = "gang-scale-up"
"""Name of the AdmissionCheck and of its configuration."""

PROVISIONING_CLASS: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""Room that exists is used, and what lacks is made in one step of one group."""

_CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"

_TRIES: Final = 1_000
"""Kueue deactivates a run after so many refusals; at 30 minutes each, spot may be short for three weeks."""


def admission_check(pool: NodePool) -> str | None:
    """The check that runs admitted to this pool must pass; None where nothing could answer it."""
    scaled = pool.nodes is Nodes.MANAGED and pool.workload is Workload.GPU_TRAINING
    return CHECK if scaled else None


def checks_strategy(pools: Iterable[NodePool]) -> dict[str, Any]:
    """`admissionChecksStrategy` of a ClusterQueue over these pools, empty if none has a check."""
    checked = [pool.name for pool in pools if admission_check(pool)]
    return {"admissionChecks": [{"name": CHECK, "onFlavors": checked}]} if checked else {}


def provisioning_config() -> Manifest:
    """How the requests are made: only for pods with GPUs, and again after a refusal."""
    return {
        "apiVersion": naming.KUEUE_API,
        "kind": "ProvisioningRequestConfig",
        "metadata": metadata(CHECK, labels=naming.object_labels("queues")),
        "spec": {
            "provisioningClassName": PROVISIONING_CLASS,
            "managedResources": [naming.GPU],
            "retryStrategy": {
                "backoffLimitCount": _TRIES,
                "backoffBaseSeconds": 60,
                "backoffMaxSeconds": 1_800,
            },
        },
    }


def check() -> Manifest:
    """The AdmissionCheck."""
    return {
        "apiVersion": naming.KUEUE_API,
        "kind": "AdmissionCheck",
        "metadata": metadata(CHECK, labels=naming.object_labels("queues")),
        "spec": {
            "controllerName": _CONTROLLER,
            "parameters": {
                "apiGroup": naming.KUEUE_API.partition("/")[0],
                "kind": "ProvisioningRequestConfig",
                "name": CHECK,
            },
        },
    }


class GangScaleUp(pulumi.ComponentResource):
    """The check and its configuration: before the queues that name it, after Kueue."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("GangScaleUp"), name, None, opts)
        config = KubernetesObject(
            f"{name}-config", provisioning_config(), pulumi.ResourceOptions(parent=self)
        )
        self.check = KubernetesObject(
            f"{name}-check",
            check(),
            pulumi.ResourceOptions(parent=self, depends_on=[config]),
        )
        self.register_outputs({"check": CHECK})
