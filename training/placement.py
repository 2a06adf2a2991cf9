"""Eligible pools of a run, and the affinity, tolerations and devices of its pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from infra.domain import fabric, naming, prices, quantity
from infra.domain.platform import Platform
from infra.domain.pools import NodePool, placed_alike
from training.spec import Resources, RunSpec

_NODE_SHARE: Final = 0.9
"""Part of a node that a run takes by default; the rest is for pods such as mpirun's."""
_CPU_STEP: Final = 100
_MEMORY_STEP: Final = 64 * quantity.MIB
_SHM_SHARE: Final = 4
"""Default shared memory is memory divided by this."""
_SHARED: Final = ("cpu", "memory")
"""What the GPUs of a node share, as in NodePool.node_quota."""

_SCRATCH_PART: Final = 0.8
"""Part of local disks that pods may fill with scratch data."""


def suits(spec: RunSpec, pool: NodePool) -> bool:
    """Whether each of the run's pods fits a node of the pool, one pod per node.

    A run of several nodes takes whole nodes: Kueue's topology assignment ignores anti-affinity and would place
    two half-node pods on one node, where they could not both run.
    """
    return pool.capacity.value in spec.gang_capacity_types and fits(spec, pool)


def fits(spec: RunSpec, pool: NodePool) -> bool:
    """Return the same regardless of the pool's capacity type."""
    if spec.gpu_model and spec.gpu_model not in pool.gpu_models:
        return False
    if pool.sharing:
        # Two shares can be of one GPU, which NCCL rejects.
        return spec.nodes == spec.processes_per_node == 1
    if spec.nodes > 1:
        return pool.gpus_per_node == spec.processes_per_node
    return pool.gpus_per_node >= spec.processes_per_node


def eligible_pools(spec: RunSpec, platform: Platform) -> tuple[NodePool, ...]:
    """Return the pools that the gang, or any group of the run, can be admitted to, in its queue's order."""
    return placed_alike(pool for pool in platform.gpu_pools(spec.team) if suits(spec, pool))


def affinity(
    spec: RunSpec, pools: tuple[NodePool, ...], *, in_order: bool = False
) -> dict[str, Any]:
    """Return the affinity to nodes of the eligible pools, with at most one pod of the gang on a node.

    `in_order`: prefer nodes with the first pool's capacity type. Kueue's queues have this order already.
    """
    terms = [
        {"key": naming.WORKLOAD_TYPE, "operator": "In", "values": [naming.GPU_TRAINING]},
        {"key": naming.POOL, "operator": "In", "values": [pool.name for pool in pools]},
    ]
    if spec.gpu_model:
        terms.append(_model_term(spec.gpu_model, pools))
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": terms}]
            },
            **(_preferred(pools) if in_order else {}),
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": naming.HOSTNAME,
                    "labelSelector": {"matchLabels": {naming.WORKER_OF: spec.gang_id}},
                }
            ]
        },
    }


def _preferred(pools: tuple[NodePool, ...]) -> dict[str, Any]:
    """The first pool's capacity type, before all others."""
    first = [pool.name for pool in pools if pool.capacity is pools[0].capacity]
    if len(first) == len(pools):
        return {}
    term = {"key": naming.POOL, "operator": "In", "values": first}
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [term]}}
        ]
    }


def _model_term(model: str, pools: tuple[NodePool, ...]) -> dict[str, Any]:
    """Nodes with these GPUs: by their label, or by instance type where a pool has several types.

    All nodes of a node group have the same labels, so a mixed pool has no `gpu.model`; every cloud sets the type.
    """
    if all(pool.labels().get(naming.GPU_MODEL) == model for pool in pools):
        return {"key": naming.GPU_MODEL, "operator": "In", "values": [model]}
    types = sorted({t.name for pool in pools for t in pool.types if t.gpu_model == model})
    return {"key": naming.INSTANCE_TYPE, "operator": "In", "values": types}


def tolerations(pools: tuple[NodePool, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for pool in pools:
        found += [t for t in pool.tolerations() if t not in found]
    return found


def network_devices(spec: RunSpec, pools: tuple[NodePool, ...]) -> dict[str, int]:
    """Return adapters per pod by resource: those that all eligible pools have; none for one node."""
    if spec.nodes == 1:
        return {}
    found = [pool.fabric_devices for pool in pools]
    least = {name: min(devices.get(name, 0) for devices in found) for name in found[0]}
    return {name: number for name, number in least.items() if number}


def network_env(spec: RunSpec, pools: tuple[NodePool, ...]) -> dict[str, str]:
    return fabric.common_env(pools) if spec.nodes > 1 else {}


def scratch_gib(spec: RunSpec, pools: tuple[NodePool, ...]) -> int:
    """Return the most that a pod may write to its scratch volume, in GiB; 0: no limit is known.

    Its share of the smallest eligible node's NVMe by GPUs; a tenth of the disk is left to images and logs, and
    another to kubelet, which evicts pods when less than that is free.
    """
    shares = [
        pool.local_nvme_gb * min(spec.processes_per_node / pool.gpus_per_node, 1.0)
        for pool in pools
    ]
    return int(min(shares, default=0.0) * _SCRATCH_PART * 1e9 / quantity.GIB)


def network_settings(spec: RunSpec) -> dict[str, str]:
    """Return the variables of the run's own network settings; they replace those of its pools."""
    own = spec.network
    found = {
        "NCCL_DEBUG": own.debug,
        "NCCL_DEBUG_SUBSYS": ",".join(own.subsystems),
        "NCCL_BUFFSIZE": own.buffer_bytes,
        "NCCL_NTHREADS": own.threads,
        "NCCL_ALGO": ",".join(own.algorithms),
        "NCCL_SOCKET_IFNAME": f"={own.interface}" if own.interface else "",
        "GLOO_SOCKET_IFNAME": own.interface,
        "TORCH_DISTRIBUTED_DEBUG": own.distributed_debug,
    }
    return {name: str(value) for name, value in found.items() if value}


def pod_resources(spec: RunSpec, pools: Sequence[NodePool]) -> Resources:
    """Return requests of one pod: those of the run file, or its GPUs' share of the smallest eligible node."""
    own = spec.resources
    if own.cpu and own.memory and own.shm:
        return own
    share = share_of_node(spec.processes_per_node, pools)
    memory = own.memory or share.memory
    return Resources(
        cpu=own.cpu or share.cpu, memory=memory, shm=own.shm or _part_of_memory(memory)
    )


def share_of_node(gpus: int, pools: Sequence[NodePool]) -> Resources:
    """Return the share that so many GPUs have of the smallest node of these pools."""
    shares = [
        {name: pool.node_quota[name] * gpus / pool.gpus_per_node for name in _SHARED}
        for pool in pools
    ]
    least = {
        name: _NODE_SHARE * min((one[name] for one in shares), default=0.0) for name in _SHARED
    }
    memory = quantity.memory(_rounded(least["memory"], _MEMORY_STEP))
    return Resources(
        cpu=quantity.cpu(_rounded(least["cpu"], _CPU_STEP)),
        memory=memory,
        shm=_part_of_memory(memory),
    )


def _part_of_memory(memory: str) -> str:
    return quantity.memory(_rounded(quantity.bytes_(memory) / _SHM_SHARE, _MEMORY_STEP))


def _rounded(amount: float, step: int) -> int:
    """Round down to a multiple of `step`, which is also the least."""
    return max(int(amount // step), 1) * step


def usd_per_hour(spec: RunSpec, pools: tuple[NodePool, ...]) -> float | None:
    """Return the highest price in USD per hour of a run, with all its groups, among the pools; None: unknown."""
    if spec.groups is None:
        return _gang_usd_per_hour(spec, pools)
    return prices.total(_gang_usd_per_hour(gang, _of_gang(gang, pools)) for gang in spec.gangs())


def _of_gang(gang: RunSpec, pools: Sequence[NodePool]) -> Sequence[NodePool]:
    own = gang.gang_capacity_types
    return [pool for pool in pools if pool.capacity.value in own] or pools


def _gang_usd_per_hour(gang: RunSpec, pools: Sequence[NodePool]) -> float | None:
    known = [usd for pool in pools if (usd := prices.per_node(pool)) is not None]
    return round(gang.nodes * max(known), 4) if len(known) == len(pools) else None
