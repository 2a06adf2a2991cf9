"""NodeConfig: settings that nodeadm applies when a node of Amazon Linux 2023 starts.

EKS merges it with its own part (cluster, endpoint, labels) in managed node groups.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from infra.domain.pools import NodePool

API: Final = "node.eks.aws/v1alpha1"
_BOUNDARY: Final = "node-config"


def node_config(pool: NodePool) -> dict[str, Any] | None:
    """Return a pool's NodeConfig; None where nodeadm's defaults are right.

    One RAID0 array of the instance store holds the state of kubelet and containerd, and so what pods write to
    emptyDir volumes. nodeadm skips it on instances without instance store, as a mixed pool may have.
    """
    if not pool.instance_store:
        return None
    return {
        "apiVersion": API,
        "kind": "NodeConfig",
        "spec": {"instance": {"localStorage": {"strategy": "RAID0"}}},
    }


def user_data(config: Mapping[str, Any] | None) -> str | None:
    """Return the launch template's user data, base64 of a MIME document as EKS requires; None without a config."""
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
    return base64.b64encode("\n".join(lines).encode()).decode()
