"""NCCL's settings follow from a pool's network, and from nothing else."""

from __future__ import annotations

import pytest

from infra.domain import fabric
from infra.domain.pools import Fabric, Network, NodePool, Nodes
from tests.unit.infra.gpu_pools import ROCE, gpu_pool

EFA = gpu_pool()
TCP = gpu_pool(network=Network.TCP)
UNKNOWN = gpu_pool(nodes=Nodes.EXISTING, network=Network.TCP)
PROCESS = gpu_pool(nodes=Nodes.PROCESS, network=Network.TCP)


def test_over_efa_libfabric_has_one_provider_and_takes_no_huge_pages() -> None:
    assert fabric.nccl_env(EFA) == {
        "FI_PROVIDER": "efa",
        "FI_EFA_USE_HUGE_PAGE": "0",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "NCCL_DEBUG": "WARN",
    }


def test_over_tcp_adapters_of_other_networks_stay_unused() -> None:
    assert fabric.nccl_env(TCP) == {
        "NCCL_IB_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "NCCL_DEBUG": "WARN",
    }


def test_over_roce_what_the_site_states_is_set() -> None:
    assert fabric.nccl_env(ROCE) == {
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "NCCL_DEBUG": "WARN",
    }


def test_what_nobody_knows_is_left_to_nccl() -> None:
    bare = gpu_pool(
        nodes=Nodes.EXISTING, network=Network.ROCE, fabric=Fabric(rdma_resource="rdma/hca")
    )
    assert fabric.nccl_env(bare) == {"NCCL_IB_DISABLE": "0", "NCCL_DEBUG": "WARN"}
    assert "NCCL_SOCKET_IFNAME" not in fabric.nccl_env(UNKNOWN)


@pytest.mark.parametrize("pool", [EFA, TCP, ROCE, UNKNOWN])
def test_sizes_threads_algorithms_and_protocols_are_nccls_own(pool: NodePool) -> None:
    ours = {"NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_SOCKET_IFNAME"}
    ours |= {"NCCL_DEBUG", "FI_PROVIDER", "FI_EFA_USE_HUGE_PAGE"}
    assert set(fabric.nccl_env(pool)) <= ours
    assert all(fabric.owns_variable(key) for key in fabric.nccl_env(pool))


def test_simulated_nodes_have_no_gpus_to_speak_nccl() -> None:
    assert fabric.nccl_env(PROCESS) == fabric.collective_env(PROCESS) == {}


def test_a_test_of_collectives_says_what_carried_them() -> None:
    told = fabric.collective_env(EFA)
    assert (told["NCCL_DEBUG"], told["NCCL_DEBUG_SUBSYS"]) == ("INFO", "INIT,NET")
    assert told["FI_PROVIDER"] == "efa"


def test_of_several_pools_only_what_holds_on_all_is_set() -> None:
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
def test_interface_and_mtu_are_facts_of_whoever_makes_the_nodes(
    pool: NodePool, interface: str, mtu: int | None
) -> None:
    assert (fabric.expected_interface(pool), fabric.expected_mtu(pool)) == (interface, mtu)


@pytest.mark.parametrize(
    "variable", ["NCCL_ALGO", "FI_PROVIDER", "OFI_NCCL_PROTOCOL", "RDMAV_FORK_SAFE"]
)
def test_no_run_brings_settings_of_the_network(variable: str) -> None:
    assert fabric.owns_variable(variable)


@pytest.mark.parametrize("variable", ["WANDB_API_KEY", "TORCH_NCCL_TRACE", "HF_TOKEN"])
def test_a_run_brings_variables_of_its_own(variable: str) -> None:
    assert not fabric.owns_variable(variable)
