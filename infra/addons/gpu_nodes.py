"""Settings that add-ons on GPU nodes share: affinity, tolerations and the device plugin's configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from infra.domain import naming
from infra.domain.gpu_sharing import SharingMode
from infra.domain.pools import NodePool, Workload
from infra.kubernetes.objects import Manifest, manifest

PRIVILEGED: Final = {"pod-security.kubernetes.io/enforce": "privileged"}
"""Labels of a namespace whose pods access devices and the kubelet's sockets."""

PLUGIN_CONFIG: Final = "device-plugin-config"
WHOLE_GPUS: Final = "whole-gpus"
"""Default part of the device plugin's configuration, for nodes without a label."""
COMPONENT: Final = "gpus"


@dataclass(frozen=True, kw_only=True)
class GpuNodesArgs:
    """The stack's pools, and the source of driver and DCGM engine."""

    pools: tuple[NodePool, ...]
    """All pools; those without GPUs and simulated ones are ignored."""
    operator_brings_driver: bool = False
    """False: the nodes' machine image has NVIDIA's driver and container toolkit."""
    engine_on_nodes: bool = False
    """EKS's node monitoring agent runs a DCGM engine on port 5555 of every GPU node."""

    @property
    def gpu_pools(self) -> tuple[NodePool, ...]:
        """Pools of GPU nodes that are not simulated."""
        return tuple(
            p for p in self.pools if p.workload is Workload.GPU_TRAINING and not p.nodes.simulated
        )

    def shared(self, *modes: SharingMode) -> tuple[NodePool, ...]:
        return tuple(p for p in self.gpu_pools if p.sharing and p.sharing.mode in modes)


def tolerations(pools: Iterable[NodePool]) -> list[dict[str, Any]]:
    """Return tolerations of exactly the taints of these pools, without duplicates."""
    found: list[dict[str, Any]] = []
    for pool in pools:
        found += [one for one in pool.tolerations() if one not in found]
    return found


def gpu_node_affinity() -> dict[str, Any]:
    """Return node affinity to GPU nodes, by the label that every GPU pool sets.

    Charts default to labels of Node Feature Discovery, which only the GPU operator installs.
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
    return manifest(
        "v1/ConfigMap", name, COMPONENT, namespace=naming.GPU_OPERATOR_NAMESPACE, data=dict(data)
    )


def plugin_config(args: GpuNodesArgs) -> dict[str, str]:
    """Return the device plugin's configuration by part: whole GPUs, and a part per pool that shares them.

    Nodes of such a pool have a label with its name, see NodePool.labels. Empty if no pool shares GPUs.
    """
    sliced = args.shared(SharingMode.TIME_SLICING, SharingMode.MPS)
    if not sliced:
        return {}
    parts = {WHOLE_GPUS: _text({"version": "v1"})}
    return parts | {pool.name: _text(_slices(pool)) for pool in sliced}


def _slices(pool: NodePool) -> dict[str, Any]:
    """Return a pool's part. Pods that request two slices are rejected: both could be of one GPU."""
    assert pool.sharing
    resources = [{"name": naming.GPU, "replicas": pool.sharing.shares}]
    by_turns = pool.sharing.mode is SharingMode.TIME_SLICING
    # With MPS the plugin always rejects them.
    more = {"failRequestsGreaterThanOne": True} if by_turns else {}
    return {"version": "v1", "sharing": {pool.sharing.mode.value: {**more, "resources": resources}}}


def _text(value: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(value), sort_keys=False)
    return text
