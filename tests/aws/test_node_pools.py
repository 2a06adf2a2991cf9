"""Managed node groups: the settings of each pool."""

from __future__ import annotations

from typing import Any

import pytest

from infra.domain import naming
from infra.domain.pools import Capacity, NodePool
from infra.sites.aws.node_pools import NodePools, NodePoolsArgs, scaling
from infra.sites.aws.pool_nodes import ami_type, group_timeouts
from tests.aws import pools
from tests.aws.moto_cloud import Cloud, Deployed, deploy


@pytest.fixture
def made() -> Deployed:
    return pools.managed()[1]


def group(made: Deployed, pool: NodePool) -> Any:
    return made.one("aws:eks/nodeGroup:NodeGroup", f"nodes-{pool.name}").inputs


def test_each_pool_is_a_node_group_in_the_private_subnet_of_its_zone(made: Deployed) -> None:
    place = pools.managed()[0]
    assert len(made.all("aws:eks/nodeGroup:NodeGroup")) == len(pools.ALL)
    for pool in pools.ALL:
        assert group(made, pool)["subnetIds"] == [place.network.private_subnets[pool.zone]]


def test_spot_group_may_have_several_instance_types(made: Deployed) -> None:
    spot = group(made, pools.SPOT)
    assert spot["capacityType"] == "SPOT"
    assert spot["instanceTypes"] == ["p4d.24xlarge", "p3dn.24xlarge"]


def test_node_groups_have_the_purchase_model_of_their_pools(made: Deployed) -> None:
    bought = {pool.name: group(made, pool)["capacityType"] for pool in pools.ALL}
    assert bought == {
        "spot": "SPOT",
        "ondemand": "ON_DEMAND",
        "block": "CAPACITY_BLOCK",
        "held": "ON_DEMAND",
        "cpu": "ON_DEMAND",
    }


def test_capacity_block_group_leaves_its_type_to_the_template(made: Deployed) -> None:
    assert "instanceTypes" not in group(made, pools.RESERVED)


@pytest.mark.parametrize("pool", pools.ALL, ids=lambda pool: pool.name)
def test_labels_match_the_pool(made: Deployed, pool: NodePool) -> None:
    given = group(made, pool)["labels"]
    set_by_the_cloud = {naming.ZONE, naming.INSTANCE_TYPE}
    assert given == {k: v for k, v in pool.labels().items() if k not in set_by_the_cloud}
    assert (given[naming.POOL], given["team"]) == (pool.name, "any")


@pytest.mark.parametrize("pool", pools.ALL, ids=lambda pool: pool.name)
def test_taints_match_the_pool(made: Deployed, pool: NodePool) -> None:
    given = group(made, pool).get("taints", [])
    assert given == [
        {"key": taint.key, "value": taint.value, "effect": "NO_SCHEDULE"} for taint in pool.taints
    ]


def test_sizes_match_the_pool_and_start_at_its_minimum(made: Deployed) -> None:
    assert group(made, pools.ONDEMAND)["scalingConfig"] == {
        "minSize": 1,
        "maxSize": 4,
        "desiredSize": 1,
    }


def test_capacity_block_group_starts_at_zero_nodes() -> None:
    block = pools.pool(capacity=Capacity.ON_DEMAND, min=2, max=4, reservation=pools.BLOCK)
    sizes = scaling(block)
    assert (sizes.min_size, sizes.desired_size, sizes.max_size) == (0, 0, 4)


def test_updates_ignore_the_desired_size(made: Deployed) -> None:
    for one in made.all("aws:eks/nodeGroup:NodeGroup"):
        assert one.ignore_changes == {"scalingConfig.desiredSize"}


def test_node_repair_has_the_same_parallelism_as_updates(made: Deployed) -> None:
    for pool in pools.ALL:
        assert group(made, pool)["nodeRepairConfig"] == {
            "enabled": True,
            "maxParallelNodesRepairedCount": pool.max_unavailable,
        }


def test_update_replaces_no_more_nodes_than_the_pool_allows(made: Deployed) -> None:
    assert group(made, pools.ONDEMAND)["updateConfig"] == {"maxUnavailable": 2}
    assert group(made, pools.SPOT)["updateConfig"] == {"maxUnavailable": 1}


@pytest.mark.parametrize(
    ("pool", "image"),
    [
        (pools.SPOT, "AL2023_x86_64_NVIDIA"),
        (pools.CPU, "AL2023_x86_64_STANDARD"),
        (pools.pool(instance_types=("p6e-gb200.36xlarge",)), "AL2023_ARM_64_NVIDIA"),
    ],
    ids=["gpu", "cpu", "arm"],
)
def test_ami_type_fits_the_hardware(pool: NodePool, image: str) -> None:
    assert ami_type(pool) == image


def test_nodes_have_the_cluster_version(made: Deployed) -> None:
    assert {group(made, pool)["version"] for pool in pools.ALL} == {"1.35"}


def test_group_uses_the_latest_version_of_its_template(made: Deployed) -> None:
    for pool in pools.ALL:
        template = made.one("aws:ec2/launchTemplate:LaunchTemplate", f"nodes-{pool.name}-template")
        assert group(made, pool)["launchTemplate"] == {
            "id": template.id,
            "version": str(template.outputs["latestVersion"]),
        }


def test_groups_are_deleted_before_the_dependencies_of_their_component(made: Deployed) -> None:
    (component,) = made.all("trainyard:infra:AwsNodePools")
    assert "addons" in component.depends_on
    for pool in pools.ALL:
        assert made.one("aws:eks/nodeGroup:NodeGroup", f"nodes-{pool.name}").parent == "nodes"


def test_zone_without_a_private_subnet_is_rejected(cloud: Cloud) -> None:
    args = NodePoolsArgs(**pools.place(cloud).common(pools.pool(zone="us-east-1f")))
    with pytest.raises(KeyError, match="us-east-1f"):
        deploy(lambda opts: NodePools("nodes", args, opts), cloud)


@pytest.mark.parametrize(
    ("nodes", "parallel", "update"),
    [(1, 1, "120m"), (4, 1, "210m"), (50, 5, "390m"), (51, 5, "420m"), (3, 5, "120m")],
)
def test_an_update_may_last_as_long_as_its_batches(nodes: int, parallel: int, update: str) -> None:
    limits = group_timeouts(nodes, parallel)
    assert (limits.create, limits.update, limits.delete) == ("90m", update, "90m")
