"""NCCL settings depend on the network of a pool only."""

from __future__ import annotations

import pytest

from infra.domain import fabric
from infra.domain.pools import Fabric, Network, NodePool, Nodes
from tests.unit.infra.gpu_pools import ROCE, gpu_pool

EFA = gpu_pool()
TCP = gpu_pool(network=Network.TCP)
UNKNOWN = gpu_pool(nodes=Nodes.EXISTING, network=Network.TCP)
PROCESS = gpu_pool(nodes=Nodes.PROCESS, network=Network.TCP)


def test_roce_uses_the_settings_of_the_stack_file() -> None:
    assert fabric.nccl_env(ROCE) == {
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "NCCL_DEBUG": "WARN",
    }


def test_unknown_network_facts_are_left_to_nccl() -> None:
    bare = gpu_pool(
        nodes=Nodes.EXISTING, network=Network.ROCE, fabric=Fabric(rdma_resource="rdma/hca")
    )
    assert fabric.nccl_env(bare) == {"NCCL_IB_DISABLE": "0", "NCCL_DEBUG": "WARN"}
    assert "NCCL_SOCKET_IFNAME" not in fabric.nccl_env(UNKNOWN)


@pytest.mark.parametrize("pool", [EFA, TCP, ROCE, UNKNOWN])
def test_nccl_tuning_variables_are_never_set(pool: NodePool) -> None:
    ours = {"NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_SOCKET_IFNAME"}
    ours |= {"NCCL_DEBUG", "FI_PROVIDER", "FI_EFA_USE_HUGE_PAGE"}
    assert set(fabric.nccl_env(pool)) <= ours
    assert all(fabric.owns_variable(key) for key in fabric.nccl_env(pool))


def test_simulated_nodes_get_no_nccl_variables() -> None:
    assert fabric.nccl_env(PROCESS) == fabric.collective_env(PROCESS) == {}


def test_several_pools_share_only_their_common_settings() -> None:
    assert fabric.common_env((EFA, EFA)) == fabric.nccl_env(EFA)
    assert fabric.common_env((EFA, TCP)) == {"NCCL_SOCKET_IFNAME": "=eth0", "NCCL_DEBUG": "WARN"}
    assert fabric.common_env((EFA, UNKNOWN)) == {"NCCL_DEBUG": "WARN"}


@pytest.mark.parametrize(
    ("pool", "interface", "mtu"),
    [
        (EFA, "eth0", 9001),
        (gpu_pool(nodes=Nodes.KARPENTER), "eth0", 9001),
        (PROCESS, "lo", 65536),
        (ROCE, "eth0", 9000),
        (UNKNOWN, "", None),
    ],
)
def test_expected_interface_and_mtu_depend_on_the_node_provider(
    pool: NodePool, interface: str, mtu: int | None
) -> None:
    assert (fabric.expected_interface(pool), fabric.expected_mtu(pool)) == (interface, mtu)


@pytest.mark.parametrize(
    "variable", ["NCCL_ALGO", "FI_PROVIDER", "OFI_NCCL_PROTOCOL", "RDMAV_FORK_SAFE"]
)
def test_run_must_not_set_network_variables(variable: str) -> None:
    assert fabric.owns_variable(variable)


@pytest.mark.parametrize("variable", ["WANDB_API_KEY", "TORCH_NCCL_TRACE", "HF_TOKEN"])
def test_run_may_set_other_variables(variable: str) -> None:
    assert not fabric.owns_variable(variable)
