"""User data of nodes of Amazon Linux 2023: the NodeConfig that nodeadm applies, and a script that runs before it.

EKS merges both with its own part (cluster, endpoint, labels) in managed node groups, Karpenter in its nodes.
"""

from __future__ import annotations

import base64
import json
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


DEVICES_BY_PLUGIN_ONLY: Final = """\
#!/bin/bash
nvidia-ctk config --in-place \\
  --set accept-nvidia-visible-devices-envvar-when-unprivileged=false \\
  --set accept-nvidia-visible-devices-as-volume-mounts=true
"""
"""Make NVIDIA's container toolkit ignore `NVIDIA_VISIBLE_DEVICES` of unprivileged containers, which most CUDA
images set to `all`: they get the GPUs or MIG instances that the device plugin allocates to them, by CDI or as
mounts of the host's /dev/null, which no pod of a team can have. The toolkit reads the file for every container."""


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


def user_data(pool: NodePool) -> str | None:
    """Return the launch template's user data, base64 of a MIME document as EKS requires; None without settings."""
    document = mime_document(pool)
    return base64.b64encode(document.encode()).decode() if document else None


def mime_document(pool: NodePool, *, disks: bool = True) -> str | None:
    """Return the MIME document that Karpenter's user data is; None without settings.

    `disks`: as in `node_config`.
    """
    parts = []
    if pool.cards_per_node:
        parts.append(("text/x-shellscript", DEVICES_BY_PLUGIN_ONLY))
    if config := node_config(pool, disks=disks):
        # JSON is YAML, too.
        parts.append(("application/node.eks.aws", json.dumps(config, indent=2) + "\n"))
    if not parts:
        return None
    bodies = "".join(f"--{_BOUNDARY}\nContent-Type: {kind}\n\n{body}" for kind, body in parts)
    head = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{_BOUNDARY}"\n\n'
    return f"{head}{bodies}--{_BOUNDARY}--\n"
