"""Topology levels: used only where every node of a pool has the label."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.config import arguments, parse, platform_record
from infra.domain import catalog, naming, topology
from infra.domain.catalog import ec2
from infra.domain.pools import NodePool, Nodes
from infra.queueing import kueue
from infra.sites.simulated import node_pools
from tests import committed
from tests.golden.example_runs import platform, run, stack_values
from tests.unit.infra.test_pools import pool
from training import placement
from training.gangs.kueue import BACKEND as GANGS


def simulated(**changes: Any) -> NodePool:
    return pool(nodes=Nodes.KWOK, **changes)


def managed(*types: str, nodes: Nodes = Nodes.MANAGED) -> NodePool:
    return pool(nodes=nodes, instance_types=types)


def test_existing_nodes_have_the_zone_level_only() -> None:
    assert topology.pool_topology(pool()).levels == (naming.ZONE, naming.HOSTNAME)


def test_simulated_nodes_are_in_racks_of_four() -> None:
    five = simulated(instance_types=("p4d.24xlarge",), max=5)
    racks = [
        node_pools.node(five, index)["metadata"]["labels"][naming.RACK] for index in range(five.max)
    ]
    assert racks == ["spot-0"] * 4 + ["spot-1"]


@pytest.mark.parametrize("nodes", [Nodes.KWOK, Nodes.PROCESS])
def test_simulated_nodes_have_the_label_of_every_level(nodes: Nodes) -> None:
    one = pool(nodes=nodes)
    labels = node_pools.node(one, 0)["metadata"]["labels"]
    assert set(topology.pool_topology(one).levels) <= labels.keys()


def test_ec2_reports_topology_levels_for_training_types() -> None:
    levels = topology.pool_topology(managed("p4d.24xlarge", "p5.48xlarge")).levels
    assert levels == (naming.ZONE, *ec2.TOPOLOGY_LABELS, naming.HOSTNAME)


def test_one_type_without_topology_removes_the_levels_from_its_pool() -> None:
    assert topology.pool_topology(managed("p4d.24xlarge", "p3.16xlarge")) == topology.FLAT


def test_types_with_topology_are_in_the_catalog() -> None:
    assert catalog.load().types.keys() >= ec2.TYPES_WITH_TOPOLOGY


def test_gang_topology_is_the_narrowest_level_of_all_its_pools() -> None:
    near, far = managed("p4d.24xlarge"), managed("p3.16xlarge")
    assert topology.gang_level([near]) == ec2.TOPOLOGY_LABELS[-1]
    assert topology.gang_level([near, far]) == naming.ZONE
    assert topology.gang_level([simulated(), near]) == naming.ZONE
    assert topology.gang_level([simulated(), simulated()]) == naming.RACK


def on(nodes: str, network: str) -> list[dict[str, Any]]:
    """The example's pools with other nodes and another network."""
    pools: list[dict[str, Any]] = copy.deepcopy(stack_values()["nodePools"])
    for one in pools:
        one |= {"nodes": nodes}
        if one.get("workload") != "cpu":
            one |= {"network": network}
    return pools


@pytest.mark.parametrize(
    ("nodes", "network", "annotation", "level"),
    [
        ("existing", "efa", naming.REQUIRED_TOPOLOGY, naming.ZONE),
        ("existing", "tcp", naming.PREFERRED_TOPOLOGY, naming.ZONE),
        ("kwok", "efa", naming.PREFERRED_TOPOLOGY, naming.RACK),
        ("kwok", "tcp", naming.PREFERRED_TOPOLOGY, naming.RACK),
    ],
)
def test_gang_prefers_a_rack_and_requires_a_zone_over_efa(
    nodes: str, network: str, annotation: str, level: str
) -> None:
    offered = platform(nodePools=on(nodes, network))
    gang = run()
    pools = placement.eligible_pools(gang, offered)
    assert GANGS.topology(gang, pools) == {annotation: level}


def test_single_node_run_has_no_topology_request() -> None:
    offered = platform(nodePools=on("kwok", "efa"))
    single = run(nodes=1)
    pools = placement.eligible_pools(single, offered)
    found = GANGS.topology(single, pools)
    assert found == {naming.PREFERRED_TOPOLOGY: naming.ZONE}


def beside_karpenter(**block: Any) -> dict[str, Any]:
    """The production stack with its capacity block in a managed group, beside Karpenter's pools."""
    values = committed.values(committed.MANAGED_BLOCK)
    (found,) = [one for one in values["nodePools"] if one["name"] == "block"]
    found |= block
    return values


def test_a_pool_beside_karpenters_has_no_topology_by_default() -> None:
    assert not any(pool.topology for pool in parse(beside_karpenter()).pools)


def test_a_pool_beside_karpenters_may_have_a_topology() -> None:
    pools = arguments.queues(parse(beside_karpenter(topology=True))).pools
    names = {p.name: kueue.flavor(p)["spec"].get("topologyName") for p in pools}
    assert names == {"block": topology.EC2.name, "ondemand": None, "spot": None}


@pytest.mark.parametrize(("model", "names"), [("h100", ["block"]), ("", ["ondemand", "spot"])])
def test_a_run_is_placed_in_one_way(model: str, names: list[str]) -> None:
    config = parse(beside_karpenter(topology=True))
    offered = platform_record.platform(config, "prod")
    gang = run(team="production", tier="production", gpu_model=model)
    pools = placement.eligible_pools(gang, offered)
    assert sorted(pool.name for pool in pools) == names
    requested = {naming.PREFERRED_TOPOLOGY: ec2.TOPOLOGY_LABELS[-1]} if model else {}
    assert GANGS.topology(gang, pools) == requested
