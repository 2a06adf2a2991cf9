"""Pools of real nodes with GPUs, for tests of what runs on them."""

from __future__ import annotations

import dataclasses

from infra.domain.gpu_sharing import GpuSharing, SharingMode
from infra.domain.pools import Capacity, Fabric, Network, NodePool, Nodes, Workload


def gpu_pool(**changes: object) -> NodePool:
    """A managed on-demand pool of p4d over EFA."""
    base = NodePool(
        name="ondemand",
        workload=Workload.GPU_TRAINING,
        capacity=Capacity.ON_DEMAND,
        instance_types=("p4d.24xlarge",),
        min=0,
        max=4,
        zone="us-east-1a",
        nodes=Nodes.MANAGED,
        network=Network.EFA,
        taint_key="dedicated",
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


CPU = gpu_pool(
    name="cpu", workload=Workload.CPU, instance_types=("m6i.4xlarge",), network=Network.TCP
)
SPOT = gpu_pool(name="spot", capacity=Capacity.SPOT, network=Network.TCP)
SLICED = gpu_pool(
    name="notebooks",
    instance_types=("g6.12xlarge",),
    network=Network.TCP,
    sharing=GpuSharing(mode=SharingMode.TIME_SLICING, shares=4),
)
SERVED = gpu_pool(
    name="served",
    instance_types=("g6.12xlarge",),
    network=Network.TCP,
    sharing=GpuSharing(mode=SharingMode.MPS, shares=2),
)
CUT = gpu_pool(
    name="small",
    network=Network.TCP,
    sharing=GpuSharing(mode=SharingMode.MIG, shares=7, profile="1g.5gb"),
)
ROCE = gpu_pool(
    name="own",
    nodes=Nodes.EXISTING,
    network=Network.ROCE,
    fabric=Fabric(
        interface="eth0",
        mtu=9000,
        rdma_resource="rdma/hca",
        adapters=("mlx5_0", "mlx5_1"),
        gid_index=3,
    ),
)
