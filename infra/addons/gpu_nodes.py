"""What add-ons on GPU nodes have in common: which nodes, past which taints, and what they are configured with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from infra.domain import naming
from infra.domain.gpu_sharing import SharingMode
from infra.domain.pools import NodePool, Workload
from infra.kubernetes.objects import Manifest, metadata

PRIVILEGED: Final = {"pod-security.kubernetes.io/enforce": "privileged"}
"""Of a namespace whose pods reach devices and the kubelet's sockets."""

PLUGIN_CONFIG: Final = "device-plugin-config"
WHOLE_GPUS: Final = "whole-gpus"
"""The part of the device plugin's configuration for nodes that no label tells otherwise."""
COMPONENT: Final = "gpus"


@dataclass(frozen=True, kw_only=True)
class GpuNodesArgs:
    """The stack's pools, and who brings what on their nodes."""

    pools: tuple[NodePool, ...]
    """All pools; those without GPUs, and simulated ones, are nobody's business here."""
    operator_brings_driver: bool = False
    """False: the nodes' machine image has NVIDIA's driver and container toolkit."""
    engine_on_nodes: bool = False
    """EKS' node monitoring agent runs DCGM's engine on every GPU node, on the node's port 5555."""

    @property
    def gpu_pools(self) -> tuple[NodePool, ...]:
        """Pools of real nodes with GPUs."""
        return tuple(
            p for p in self.pools if p.workload is Workload.GPU_TRAINING and not p.nodes.simulated
        )

    def shared(self, *modes: SharingMode) -> tuple[NodePool, ...]:
        """Those whose GPUs are shared in one of these ways."""
        return tuple(p for p in self.gpu_pools if p.sharing and p.sharing.mode in modes)


def tolerations(pools: Iterable[NodePool]) -> list[dict[str, Any]]:
    """Tolerations of exactly the taints of these pools, each once."""
    found: list[dict[str, Any]] = []
    for pool in pools:
        found += [one for one in pool.tolerations() if one not in found]
    return found


def gpu_node_affinity() -> dict[str, Any]:
    """Node affinity to nodes with GPUs, by the label that every pool of ours sets.

    Charts wait for labels of Node Feature Discovery instead, which the minimal path does without.
    """
    term = {"key": naming.GPU_VENDOR, "operator": "In", "values": ["nvidia"]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [term]}]
            }
        }
    }


def config_map(name: str, data: Mapping[str, str]) -> Manifest:
    """A ConfigMap in the namespace of the GPU add-ons."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(
            name,
            namespace=naming.GPU_OPERATOR_NAMESPACE,
            labels=naming.object_labels(COMPONENT),
        ),
        "data": dict(data),
    }


def plugin_config(args: GpuNodesArgs) -> dict[str, str]:
    """The device plugin's configuration by part: whole GPUs, and a part per pool that shares them.

    Nodes of such a pool have a label with its name, see NodePool.labels. Empty: nothing is shared.
    """
    sliced = args.shared(SharingMode.TIME_SLICING, SharingMode.MPS)
    if not sliced:
        return {}
    parts = {WHOLE_GPUS: _text({"version": "v1"})}
    return parts | {pool.name: _text(_slices(pool)) for pool in sliced}


def _slices(pool: NodePool) -> dict[str, Any]:
    """A pod that asks for two slices would get two turns on one GPU: the plugin refuses it."""
    assert pool.sharing
    resources = [{"name": naming.GPU, "replicas": pool.sharing.shares}]
    by_turns = pool.sharing.mode is SharingMode.TIME_SLICING
    # With MPS it refuses of itself.
    more = {"failRequestsGreaterThanOne": True} if by_turns else {}
    return {"version": "v1", "sharing": {pool.sharing.mode.value: {**more, "resources": resources}}}


def _text(value: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(value), sort_keys=False)
    return text
