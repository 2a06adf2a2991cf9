"""Network of a pool's collectives: NCCL's settings, and the expected interface and MTU of nodes.

Settings follow from the pool's network; what does not is left to NCCL. A pool sets no variables of NCCL's
"Debugging" section, buffer sizes, thread counts, algorithms or protocols: NVIDIA advises against the former in
production (NCCL user guide, Environment Variables), AWS against changing NCCL_BUFFSIZE and the number of
channels (EFA cheatsheet of its distributed training samples), and its plugin chooses NCCL_PROTO by the version
of libfabric. A run's `network` may set them (`network_settings` in training/placement.py), and a
program's `env` the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.domain.pools import Network, NodePool, Nodes

POD_INTERFACE: Final = "eth0"
"""Name of a pod's interface in container runtimes; EKS's network plug-in assigns a pod one address."""
EKS_MTU: Final = 9001
"""MTU of pods on EKS: that of the VPC (EC2's network_mtu), and the default of the VPC CNI's AWS_VPC_ENI_MTU, which
pods' interfaces inherit."""
LOOPBACK: Final = "lo"
LOOPBACK_MTU: Final = 65536
"""Loopback; process nodes run their pods on its addresses."""

_DECIDED_HERE: Final = ("NCCL_", "FI_", "OFI_NCCL_", "RDMAV_")
"""Prefixes of variables that the platform sets, or deliberately leaves to NCCL."""

_QUIET: Final = {"NCCL_DEBUG": "WARN"}
"""NCCL logs errors only; NVIDIA's example of a system-wide setting."""
_TOLD: Final = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
"""NCCL logs its transport and interfaces, but not every operation."""


def owns_variable(variable: str) -> bool:
    """Whether a run may not set this variable, because it could contradict the pool's network."""
    return variable.startswith(_DECIDED_HERE)


def expected_interface(pool: NodePool) -> str:
    """Return the interface of pods' traffic; empty: not known."""
    if pool.nodes in (Nodes.MANAGED, Nodes.KARPENTER):
        return POD_INTERFACE
    return LOOPBACK if pool.nodes is Nodes.PROCESS else pool.fabric.interface


def expected_mtu(pool: NodePool) -> int | None:
    """Return the MTU of that interface in bytes; None: not known, but equal on all nodes.

    A node with a smaller one drops or fragments packets of others.
    """
    if pool.nodes in (Nodes.MANAGED, Nodes.KARPENTER):
        return EKS_MTU
    return LOOPBACK_MTU if pool.nodes is Nodes.PROCESS else pool.fabric.mtu


def nccl_env(pool: NodePool) -> dict[str, str]:
    """Return NCCL's settings for a gang on the pool's nodes; none on simulated nodes, which have no GPUs."""
    if pool.nodes.simulated:
        return {}
    settings = {Network.TCP: _tcp, Network.EFA: _efa, Network.ROCE: _roce}[pool.network](pool)
    if interface := expected_interface(pool):
        # `=`: exact match. Without it NCCL would add other interfaces, such as more adapters.
        settings["NCCL_SOCKET_IFNAME"] = f"={interface}"
    return _QUIET | settings


def collective_env(pool: NodePool) -> dict[str, str]:
    """Return the same for a test of collectives, with the chosen transport in its log."""
    return nccl_env(pool) | _TOLD if not pool.nodes.simulated else {}


def common_env(pools: Sequence[NodePool]) -> dict[str, str]:
    """Return the settings that all of these pools share, for a run whose pool is not known yet."""
    first, *others = [nccl_env(pool) for pool in pools]
    return {key: value for key, value in first.items() if all(o.get(key) == value for o in others)}


def _tcp(_: NodePool) -> dict[str, str]:
    """Return settings for TCP. NCCL_IB_DISABLE: nodes may have adapters of another network."""
    return {"NCCL_IB_DISABLE": "1"}


def _efa(_: NodePool) -> dict[str, str]:
    """Return settings of libfabric, which NCCL uses through AWS's plugin.

    FI_PROVIDER keeps libfabric from falling back to its TCP provider where a node lacks its adapters.
    FI_EFA_USE_HUGE_PAGE (EFA cheatsheet, preset of libfabric 1.18 and later): a run's pods request no huge
    pages, and a process that uses them cannot fork when they run out. By the same source FI_EFA_USE_DEVICE_RDMA,
    FI_EFA_FORK_SAFE and NCCL_PROTO are for older software only, and RDMAV_FORK_SAFE is obsolete.
    """
    return {"FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0"}


def _roce(pool: NodePool) -> dict[str, str]:
    """Return settings of NCCL's InfiniBand transport, which also supports RoCE.

    NCCL_IB_DISABLE=0 is the default, and overrides an nccl.conf in the image. NCCL_IB_HCA names the fabric's
    adapters where a node has others. NCCL_IB_GID_INDEX: since 2.21 NCCL chooses the RoCE v2 entry itself (default
    -1), so it is set only where the stack file does.
    """
    fabric = pool.fabric
    settings = {"NCCL_IB_DISABLE": "0"}
    if fabric.adapters:
        settings["NCCL_IB_HCA"] = f"={','.join(fabric.adapters)}"
    if fabric.gid_index is not None:
        settings["NCCL_IB_GID_INDEX"] = str(fabric.gid_index)
    return settings
