"""NodeConfig: settings that nodeadm applies when a node of Amazon Linux 2023 starts.

EKS merges it with its own part (cluster, endpoint, labels) in managed node groups, Karpenter in its nodes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from infra.domain.pools import NodePool

API: Final = "node.eks.aws/v1alpha1"
_BOUNDARY: Final = "node-config"


_LIMITS: Final = (
    {"type": "RLIMIT_NOFILE", "soft": 1 << 20, "hard": 1 << 20},
    # EFA and NCCL lock the memory that they register; containerd allows 8 MiB. A pod cannot raise it: a process
    # that is not root never holds an added capability. Above any node's memory, and exact as a JSON number.
    {"type": "RLIMIT_MEMLOCK", "soft": 1 << 43, "hard": 1 << 43},
)
"""Limits of every container on GPU nodes; the list replaces nodeadm's, which has RLIMIT_NOFILE only."""


def node_config(pool: NodePool, *, disks: bool = True) -> dict[str, Any] | None:
    """Return a pool's NodeConfig; None where nodeadm's defaults are right, as on nodes without GPUs and disks.

    `disks`: with the settings of the instance store.
    """
    spec: dict[str, Any] = {}
    if pool.cards_per_node:
        spec["containerd"] = {"baseRuntimeSpec": {"process": {"rlimits": list(_LIMITS)}}}
    if disks and pool.instance_store:
        spec["instance"] = _instance_store()
    return {"apiVersion": API, "kind": "NodeConfig", "spec": spec} if spec else None


def _instance_store() -> dict[str, Any]:
    """Return settings of the local disks.

    One RAID0 array of the instance store holds the state of kubelet and containerd, and so what pods write to
    emptyDir volumes. nodeadm skips it on instances without instance store, as a mixed pool may have.
    """
    return {"localStorage": {"strategy": "RAID0"}}


def user_data(config: Mapping[str, Any] | None) -> str | None:
    """Return the launch template's user data, base64 of a MIME document as EKS requires; None without a config."""
    document = mime_document(config)
    return base64.b64encode(document.encode()).decode() if document else None


def mime_document(config: Mapping[str, Any] | None) -> str | None:
    """Return the MIME document that Karpenter's user data is; None without a config."""
    if config is None:
        return None
    lines = [
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"',
        "",
        f"--{_BOUNDARY}",
        "Content-Type: application/node.eks.aws",
        "",
        # JSON is YAML, too.
        json.dumps(config, indent=2),
        f"--{_BOUNDARY}--",
        "",
    ]
    return "\n".join(lines)
