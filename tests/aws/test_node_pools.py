"""Managed node groups: the settings of each pool."""

from __future__ import annotations

from typing import Any

import pytest

from infra.domain.pools import Capacity, NodePool
from infra.sites.aws.node_pools import NodePools, scaling
from infra.sites.aws.pool_nodes import ami_type, group_timeouts
from tests.aws import pools
from tests.aws.moto_cloud import Cloud, Deployed, deploy


@pytest.fixture
def made() -> Deployed:
    return pools.managed()[1]


def group(made: Deployed, pool: NodePool) -> Any:
    return made.one("aws:eks/nodeGroup:NodeGroup", f"nodes-{pool.name}").inputs


def test_capacity_block_group_leaves_its_type_to_the_template(made: Deployed) -> None:
    assert "instanceTypes" not in group(made, pools.RESERVED)


def test_capacity_block_group_starts_at_zero_nodes() -> None:
    block = pools.pool(capacity=Capacity.ON_DEMAND, min=2, max=4, reservation=pools.BLOCK)
    sizes = scaling(block)
    assert (sizes.min_size, sizes.desired_size, sizes.max_size) == (0, 0, 4)


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


def test_groups_are_deleted_before_the_dependencies_of_their_component(made: Deployed) -> None:
    (component,) = made.all("trainyard:infra:AwsNodePools")
    assert "addons" in component.depends_on
    for pool in pools.ALL:
        assert made.one("aws:eks/nodeGroup:NodeGroup", f"nodes-{pool.name}").parent == "nodes"


def test_zone_without_a_private_subnet_is_rejected(cloud: Cloud) -> None:
    place, elsewhere = pools.place(cloud), pools.pool(zone="us-east-1f")
    with pytest.raises(KeyError, match="us-east-1f"):
        deploy(lambda opts: NodePools("nodes", [elsewhere], place, opts), cloud)


@pytest.mark.parametrize(
    ("nodes", "parallel", "update"),
    [(1, 1, "120m"), (4, 1, "210m"), (50, 5, "390m"), (51, 5, "420m"), (3, 5, "120m")],
)
def test_an_update_may_last_as_long_as_its_batches(nodes: int, parallel: int, update: str) -> None:
    limits = group_timeouts(nodes, parallel)
    assert (limits.create, limits.update, limits.delete) == ("90m", update, "90m")
