"""ProvisioningRequests: Cluster Autoscaler provides the nodes of a whole gang before Kueue admits it.

Without this check the autoscaler would buy nodes pod by pod for a gang that may never be complete. With it, a
run that has quota waits until the autoscaler has found or added nodes for all of its pods; only then are they
created. Karpenter does not support such requests, so its pools have no check.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pulumi

from infra.domain import naming
from infra.domain.pools import NodePool, Nodes, Workload
from infra.kubernetes.objects import Manifest, manifest
from infra.kubernetes.resources import KubernetesObject

CHECK: Final = "gang-scale-up"
"""Name of the AdmissionCheck and of its configuration."""

PROVISIONING_CLASS: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""Uses existing capacity and adds the missing nodes in one scale-up of one node group."""

_CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"

_TRIES: Final = 1_000
"""Rejections after which Kueue deactivates a run: three weeks of spot shortage at 30 minutes each."""


def admission_check(pool: NodePool) -> str | None:
    """Return the check that runs admitted to this pool must pass; None: nothing would answer it."""
    scaled = pool.nodes is Nodes.MANAGED and pool.workload is Workload.GPU_TRAINING
    return CHECK if scaled else None


def checks_strategy(pools: Iterable[NodePool]) -> dict[str, Any]:
    """Return `admissionChecksStrategy` of a ClusterQueue over these pools; empty if none has a check."""
    checked = [pool.name for pool in pools if admission_check(pool)]
    return {"admissionChecks": [{"name": CHECK, "onFlavors": checked}]} if checked else {}


def provisioning_config() -> Manifest:
    """Return the ProvisioningRequestConfig: GPU pods only, with retries after a rejection."""
    return manifest(
        f"{naming.KUEUE_API}/ProvisioningRequestConfig",
        CHECK,
        "queues",
        spec={
            "provisioningClassName": PROVISIONING_CLASS,
            "managedResources": [naming.GPU],
            "retryStrategy": {
                "backoffLimitCount": _TRIES,
                "backoffBaseSeconds": 60,
                "backoffMaxSeconds": 1_800,
            },
        },
    )


def check() -> Manifest:
    return manifest(
        f"{naming.KUEUE_API}/AdmissionCheck",
        CHECK,
        "queues",
        spec={
            "controllerName": _CONTROLLER,
            "parameters": {
                "apiGroup": naming.KUEUE_API.partition("/")[0],
                "kind": "ProvisioningRequestConfig",
                "name": CHECK,
            },
        },
    )


class GangScaleUp(pulumi.ComponentResource):
    """The check and its configuration; created after Kueue and before the queues that use it."""

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
