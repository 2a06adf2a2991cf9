"""What carries a pool's collectives: NCCL's settings, and what a node's network must look like.

Nothing here is a constant of ours: a setting follows from the pool's network, or it is not set and NCCL finds out
for itself. Variables of NCCL's "Debugging" section, and buffer sizes, thread counts, algorithms and protocols,
are never set: NVIDIA keeps the former out of production (NCCL user guide, Environment Variables), and AWS
advises to leave NCCL_BUFFSIZE and the number of channels alone (EFA cheatsheet of its distributed
training samples), while its plugin chooses NCCL_PROTO by the libfabric that it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.domain.pools import Network, NodePool, Nodes

POD_INTERFACE: Final = "eth0"
"""The kubelet's runtimes name a pod's own interface so; EKS' network plug-in gives a pod this one address."""
EKS_MTU: Final = 9001
"""Of pods on EKS: what the VPC carries inside (EC2's network_mtu), and the default of the VPC CNI's
AWS_VPC_ENI_MTU, which pods' interfaces take over."""
LOOPBACK: Final = "lo"
LOOPBACK_MTU: Final = 65536
"""Linux' own; process nodes run their pods on addresses of it."""

_DECIDED_HERE: Final = ("NCCL_", "FI_", "OFI_NCCL_", "RDMAV_")
"""Beginnings of the names of variables that the platform derives, or leaves to NCCL on purpose."""

_QUIET: Final = {"NCCL_DEBUG": "WARN"}
"""Says why NCCL gives up, and nothing else; NVIDIA's own example of a system-wide setting."""
_TOLD: Final = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
"""Says which transport and interfaces were chosen, and leaves out every single operation."""


def owns_variable(variable: str) -> bool:
    """Whether a run may not bring a value of its own: it would contradict what is known of the network."""
    return variable.startswith(_DECIDED_HERE)


def expected_interface(pool: NodePool) -> str:
    """The interface that a pod's traffic takes; empty: not known."""
    if pool.nodes in (Nodes.MANAGED, Nodes.KARPENTER):
        return POD_INTERFACE
    return LOOPBACK if pool.nodes is Nodes.PROCESS else pool.fabric.interface


def expected_mtu(pool: NodePool) -> int | None:
    """The MTU of that interface on every node, in bytes; None: not known, only that all must be alike.

    A node with a smaller one drops or splits what the others send it.
    """
    if pool.nodes in (Nodes.MANAGED, Nodes.KARPENTER):
        return EKS_MTU
    return LOOPBACK_MTU if pool.nodes is Nodes.PROCESS else pool.fabric.mtu


def nccl_env(pool: NodePool) -> dict[str, str]:
    """NCCL's settings for a gang on the pool's nodes; none on simulated nodes, which have no GPUs."""
    if pool.nodes.simulated:
        return {}
    settings = {Network.TCP: _tcp, Network.EFA: _efa, Network.ROCE: _roce}[pool.network](pool)
    if interface := expected_interface(pool):
        # `=`: this one exactly. Without it NCCL would add whatever else a pod has, such as more adapters.
        settings["NCCL_SOCKET_IFNAME"] = f"={interface}"
    return _QUIET | settings


def collective_env(pool: NodePool) -> dict[str, str]:
    """The same for a test of collectives, whose log shall tell what carried them."""
    return nccl_env(pool) | _TOLD if not pool.nodes.simulated else {}


def common_env(pools: Sequence[NodePool]) -> dict[str, str]:
    """What holds on all of these pools, where it is not known yet which of them it will be."""
    first, *others = [nccl_env(pool) for pool in pools]
    return {key: value for key, value in first.items() if all(o.get(key) == value for o in others)}


def _tcp(_: NodePool) -> dict[str, str]:
    """NCCL_IB_DISABLE: a node may have adapters of some other network; sockets are what was asked for."""
    return {"NCCL_IB_DISABLE": "1"}


def _efa(_: NodePool) -> dict[str, str]:
    """libfabric's settings; AWS' plugin makes NCCL use it.

    FI_PROVIDER keeps libfabric from falling back to its TCP provider where a node lacks its adapters.
    FI_EFA_USE_HUGE_PAGE (EFA cheatsheet, preset of libfabric 1.18 and later): a run's pods ask for no huge pages,
    and forks of a process that has some fail when they run out. FI_EFA_USE_DEVICE_RDMA, FI_EFA_FORK_SAFE and
    NCCL_PROTO are for older software by the same source, and RDMAV_FORK_SAFE for none.
    """
    return {"FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0"}


def _roce(pool: NodePool) -> dict[str, str]:
    """NCCL's own InfiniBand transport, which speaks RoCE, too.

    NCCL_IB_DISABLE=0 is the default, and overrides an nccl.conf of the image. NCCL_IB_HCA names the
    adapters of the fabric where a node has others. NCCL_IB_GID_INDEX: since 2.21 NCCL chooses the entry of
    RoCE v2 itself (its default is -1), so that it is set only where the site says which.
    """
    fabric = pool.fabric
    settings = {"NCCL_IB_DISABLE": "0"}
    if fabric.adapters:
        settings["NCCL_IB_HCA"] = f"={','.join(fabric.adapters)}"
    if fabric.gid_index is not None:
        settings["NCCL_IB_GID_INDEX"] = str(fabric.gid_index)
    return settings
