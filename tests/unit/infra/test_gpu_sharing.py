"""GPU sharing: number of shares, quota and node labels."""

from __future__ import annotations

import dataclasses

import pytest

from infra.domain import catalog, naming
from infra.domain.gpu_sharing import MIG_PROFILES, instances, profiles
from infra.domain.pools import Capacity, Nodes
from infra.sites.aws import karpenter_manifests
from infra.sites.simulated.node_pools import node
from tests.golden.example_runs import platform, run, stack_values
from tests.unit.infra.gpu_pools import CUT, ROCE, SERVED, SLICED, gpu_pool
from training import placement

MEMORY_GIB = {"a100": 40, "a100-80gb": 80, "h100": 80, "h200": 141, "b200": 180}


def test_shared_pool_offers_shares_instead_of_whole_gpus() -> None:
    assert (SLICED.cards_per_node, SLICED.gpus_per_node) == (4, 16)
    assert (CUT.cards_per_node, CUT.gpus_per_node) == (8, 56)
    assert gpu_pool().gpus_per_node == gpu_pool().cards_per_node == 8


def test_queue_counts_shares_and_karpenter_counts_gpus() -> None:
    assert SLICED.node_quota[naming.GPU] == 16
    assert karpenter_manifests.limits(SLICED)[naming.GPU] == str(SLICED.max * 4)


def test_shared_pool_nodes_have_the_config_label() -> None:
    assert SLICED.labels()[naming.DEVICE_PLUGIN_CONFIG] == "notebooks"
    assert SERVED.labels()[naming.DEVICE_PLUGIN_CONFIG] == "served"
    assert CUT.labels()[naming.MIG_CONFIG] == "small"
    assert not {naming.DEVICE_PLUGIN_CONFIG, naming.MIG_CONFIG} & gpu_pool().labels().keys()


def test_simulated_node_offers_shares() -> None:
    simulated = dataclasses.replace(SLICED, nodes=Nodes.KWOK)
    assert node(simulated, 0)["status"]["allocatable"][naming.GPU] == "16"


def test_mig_geometry_fills_a_gpu_exactly() -> None:
    for model, table in MIG_PROFILES.items():
        for profile, number in table.items():
            slices, _, size = profile.partition("g.")
            assert int(slices) * number <= 7, (model, profile)
            # Sizes are rounded, up to half a gigabyte each.
            assert int(size.removesuffix("gb")) * number < MEMORY_GIB[model] + number, model


def test_every_mig_model_is_in_the_catalog() -> None:
    assert MIG_PROFILES.keys() <= {t.gpu_model for t in catalog.load().types.values()}


def test_mixed_pool_accepts_only_profiles_that_all_models_support() -> None:
    assert instances("1g.10gb", ["h100", "a100-80gb"]) == 7
    assert instances("1g.10gb", ["h100", "a100"]) is None
    assert instances("1g.10gb", ["l4"]) is None
    assert profiles(["h100", "a100-80gb"])[0] == "1g.10gb"
    assert profiles(["a100", "h200"]) == ()


@pytest.mark.parametrize("shared", [SLICED, SERVED, CUT])
def test_run_on_a_shared_pool_takes_one_share(shared: object) -> None:
    assert placement.fits(run(nodes=1, processes_per_node=1), shared)  # type: ignore[arg-type]
    for nodes, processes in ((1, 2), (2, 1), (2, 16)):
        wanted = run(nodes=nodes, processes_per_node=processes)
        assert not placement.fits(wanted, shared)  # type: ignore[arg-type]


def test_gang_over_roce_takes_a_share_of_the_adapters_per_node() -> None:
    assert placement.network_devices(run(), (ROCE,)) == {"rdma/hca": 1}
    assert placement.network_devices(run(), (gpu_pool(),)) == {naming.EFA: 4}
    assert placement.network_devices(run(), (ROCE, gpu_pool())) == {}
    assert placement.network_devices(run(nodes=1), (ROCE,)) == {}


def test_queue_counts_the_adapters_of_every_network() -> None:
    from infra.queueing import kueue

    assert kueue.covered_resources((ROCE, gpu_pool())) == [
        "cpu",
        "memory",
        naming.GPU,
        "rdma/hca",
        naming.EFA,
    ]


def test_stack_file_configures_sharing_per_pool() -> None:
    pools = stack_values()["nodePools"]
    shared = platform(
        nodePools=[pools[0], pools[1] | {"network": "tcp", "nodes": "kwok"}, pools[2]],
        gpus={"sharing": {"spot": {"mig": "1g.5gb"}}},
    )
    spot = next(pool for pool in shared.pools if pool.capacity is Capacity.SPOT)
    assert spot.gpus_per_node == 56
