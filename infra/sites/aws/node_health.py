"""Node health on EKS: settings of the node monitoring agent, and node repair.

The agent reports broken GPUs as the node's condition AcceleratedHardwareReady, from a DCGM engine. Its own
engine is a DaemonSet that tolerates no taint by default; without an engine on a tainted node the agent would
report its GPUs as broken, and repair would replace a healthy node every ten minutes. So it either uses the GPU
operator's engine, or its own tolerates the pools' taints; never both: infra/addons/gpu_operator.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.domain.pools import NodePool, Workload
from infra.sites.aws.addons import Addon

NAME: Final = "eks-node-monitoring-agent"

FIRST_VERSION: Final = (1, 7, 1)
"""Its configuration schema is the first with `dcgmAgent.enabled`, `nodeAgent.dcgmAddress` and
`nodeAgent.dnsPolicy`; EKS rejects unknown keys. A refresh of the pinned versions takes no older one."""

KARPENTER_FEATURES: Final = {"nodeRepair": True}
"""Karpenter replaces a node that has been unhealthy for 10 to 30 minutes, unless a fifth of the pool is."""


def monitoring_agent(pools: Sequence[NodePool], dcgm_address: str) -> Addon:
    """Return the add-on; `dcgm_address`: address of each node's engine, empty: the agent starts one."""
    return Addon(name=NAME, settings=_settings(pools, dcgm_address))


def _settings(pools: Sequence[NodePool], dcgm_address: str) -> Mapping[str, Any]:
    tolerations: list[dict[str, Any]] = []
    for pool in pools:
        if pool.workload is Workload.GPU_TRAINING:
            tolerations += [one for one in pool.tolerations() if one not in tolerations]
    if not tolerations:
        return {}
    if dcgm_address:
        return {
            "dcgmAgent": {"enabled": False},
            # Pods on the host network resolve Service names only with this DNS policy.
            "nodeAgent": {"dcgmAddress": dcgm_address, "dnsPolicy": "ClusterFirstWithHostNet"},
        }
    return {"dcgmAgent": {"tolerations": tolerations}}
