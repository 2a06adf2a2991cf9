"""Node health on EKS: the monitoring agent's settings, and what is done with a node that it finds broken.

The agent reports broken GPUs as the node's condition AcceleratedHardwareReady. It learns of them from a DCGM
engine, and brings one itself in a DaemonSet that tolerates no taint. Without an engine on a tainted node it would
report the GPUs as broken, and repair would replace a sound node every ten minutes. So it is either sent to the
GPU operator's engine, or its own tolerates our taints; never both: infra/addons/gpu_operator.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.domain.pools import NodePool, Workload
from infra.sites.aws.addons import Addon

NAME: Final = "eks-node-monitoring-agent"
"""From v1.7.1 on it can use an engine that is there (its configuration schema: nodeAgent.dcgmAddress)."""

KARPENTER_FEATURES: Final = {"nodeRepair": True}
"""Karpenter replaces a node whose condition has been bad for 10 to 30 minutes, unless a fifth of the pool is."""


def monitoring_agent(pools: Sequence[NodePool], dcgm_address: str) -> Addon:
    """The add-on; `dcgm_address`: where the engine of each node answers, empty: the agent brings one."""
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
            # On the node's own network a Service's name is looked up in the cluster only if told so.
            "nodeAgent": {"dcgmAddress": dcgm_address, "dnsPolicy": "ClusterFirstWithHostNet"},
        }
    return {"dcgmAgent": {"tolerations": tolerations}}
