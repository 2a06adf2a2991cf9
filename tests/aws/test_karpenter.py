"""Karpenter: objects of each pool, permissions and deletion order."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from infra.addons import mirror
from infra.domain.pools import Fallback, NodePool, Nodes
from infra.sites.aws.karpenter import Karpenter
from infra.sites.aws.karpenter_manifests import node_pool
from infra.sites.aws.outputs import Place
from tests.aws import pools
from tests.aws.moto_cloud import ACCOUNT, REGION, Deployed

MINE = [dataclasses.replace(pool, nodes=Nodes.KARPENTER) for pool in pools.ALL]
SPOT, ONDEMAND, RESERVED, _, CPU = MINE

CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
POOL = "kubernetes:karpenter.sh/v1:NodePool"
RELEASE = "kubernetes:helm.sh/v3:Release"


@pytest.fixture(scope="module")
def built() -> tuple[Place, Deployed]:
    return pools.deployed_once(
        lambda place, opts: Karpenter(
            "karpenter",
            MINE,
            place,
            {name: mirror.chart(name, "") for name in ("karpenter", "karpenterCrd")},
            opts,
        )
    )


@pytest.fixture
def place(built: tuple[Place, Deployed]) -> Place:
    return built[0]


@pytest.fixture
def made(built: tuple[Place, Deployed]) -> Deployed:
    return built[1]


def requirement(pool: NodePool, key: str) -> Any:
    found = node_pool(pool)["spec"]["template"]["spec"]["requirements"]
    (values,) = [one["values"] for one in found if one["key"] == key]
    return values


def test_only_spot_pools_with_a_fallback_buy_on_demand_nodes() -> None:
    capacity = "karpenter.sh/capacity-type"
    falling_back = dataclasses.replace(SPOT, fallback=Fallback.ON_DEMAND)
    assert requirement(falling_back, capacity) == ["spot", "on-demand"]
    assert requirement(SPOT, capacity) == ["spot"]
    assert requirement(ONDEMAND, capacity) == ["on-demand"]
    assert requirement(CPU, capacity) == ["on-demand"]


def test_controller_service_account_has_the_role_and_the_role_trusts_it(
    made: Deployed,
) -> None:
    association = made.one("aws:eks/podIdentityAssociation:PodIdentityAssociation").inputs
    assert (association["namespace"], association["serviceAccount"]) == (
        "kube-system",
        "karpenter",
    )
    trust = json.loads(made.one("aws:iam/role:Role").inputs["assumeRolePolicy"])
    assert trust["Statement"][0]["Condition"]["StringEquals"] == {
        "aws:RequestTag/eks-cluster-arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/training",
        "aws:RequestTag/kubernetes-namespace": "kube-system",
        "aws:RequestTag/kubernetes-service-account": "karpenter",
    }


def test_destroy_deletes_nodes_then_the_controller_then_its_permissions(
    made: Deployed,
) -> None:
    """A controller that is gone, or that may no longer end instances, would leave finalizers."""
    needed = {
        "karpenter-spot-class",
        "karpenter-controller",
        "karpenter-crd",
        "karpenter-policy",
        "karpenter-association",
        "karpenter-interruption-queue",
        "karpenter-nodes",
    }
    assert needed <= pools.needs(made, made.one(POOL, "karpenter-spot"))
    assert "karpenter-controller" in made.one(CLASS, "karpenter-spot-class").depends_on
    assert "karpenter-crd" in made.one(RELEASE, "karpenter-controller").depends_on


def test_undrainable_node_is_terminated_before_its_deletion_times_out(
    made: Deployed,
) -> None:
    spec = node_pool(SPOT)["spec"]["template"]["spec"]
    drain_minutes = int(spec["terminationGracePeriod"].removesuffix("m"))
    for one in (made.one(POOL, "karpenter-spot"), made.one(CLASS, "karpenter-spot-class")):
        assert int(one.delete_timeout.removesuffix("m")) > drain_minutes


def test_role_policy_uses_the_actual_subnets_and_groups_of_the_pools(
    made: Deployed, place: Place
) -> None:
    policy = json.loads(made.one("aws:iam/rolePolicy:RolePolicy").inputs["policy"])
    statements = {one["Sid"]: one for one in policy["Statement"]}
    places = {arn.rpartition("/")[2] for arn in statements["LaunchIntoTheCluster"]["Resource"]}
    assert places == {
        "*",
        *place.network.private_subnets.values(),
        place.cluster.security_group,
        place.network.efa_security_group,
        "training-ondemand",
        pools.BLOCK.id,
        pools.HELD.id,
    }
    assert statements["GiveNodesTheirRole"]["Resource"] == place.cluster.node_role_arn
    assert len(json.dumps(policy)) < 10_240, "IAM's limit for a role's own policies"
