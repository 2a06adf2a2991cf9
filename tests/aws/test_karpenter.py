"""Karpenter: objects of each pool, permissions and deletion order."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from infra.addons import mirror
from infra.domain import naming
from infra.domain.pools import Fallback, NodePool, Nodes
from infra.sites.aws import karpenter_manifests
from infra.sites.aws.karpenter import Karpenter, KarpenterArgs
from infra.sites.aws.karpenter_manifests import node_pool
from tests.aws import pools
from tests.aws.moto_cloud import ACCOUNT, REGION, Deployed

MINE = [dataclasses.replace(pool, nodes=Nodes.KARPENTER) for pool in pools.ALL]
SPOT, ONDEMAND, RESERVED, _, CPU = MINE

CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
POOL = "kubernetes:karpenter.sh/v1:NodePool"
RELEASE = "kubernetes:helm.sh/v3:Release"


@pytest.fixture(scope="module")
def built() -> tuple[pools.Place, Deployed]:
    return pools.deployed_once(
        lambda place, opts: Karpenter(
            "karpenter",
            KarpenterArgs(
                **place.common(*MINE),
                chart=mirror.chart("karpenter", ""),
                crds=mirror.chart("karpenterCrd", ""),
            ),
            opts,
        )
    )


@pytest.fixture
def place(built: tuple[pools.Place, Deployed]) -> pools.Place:
    return built[0]


@pytest.fixture
def made(built: tuple[pools.Place, Deployed]) -> Deployed:
    return built[1]


def node_class(made: Deployed, pool: NodePool) -> Any:
    return made.one(CLASS, f"karpenter-{pool.name}-class").inputs["spec"]


def requirement(pool: NodePool, key: str) -> Any:
    found = node_pool(pool)["spec"]["template"]["spec"]["requirements"]
    (values,) = [one["values"] for one in found if one["key"] == key]
    return values


def test_every_pool_has_a_nodepool_and_a_node_class_of_its_name(made: Deployed) -> None:
    for type_ in (POOL, CLASS):
        names = {one.inputs["metadata"]["name"] for one in made.all(type_)}
        assert names == {pool.name for pool in MINE}
    for one in made.all(POOL):
        reference = one.inputs["spec"]["template"]["spec"]["nodeClassRef"]
        assert reference["name"] == one.inputs["metadata"]["name"]


def test_training_nodes_never_expire_and_only_empty_nodes_are_consolidated() -> None:
    for pool in MINE:
        spec = node_pool(pool)["spec"]
        lifetime = "720h" if pool == CPU else "Never"
        assert spec["template"]["spec"]["expireAfter"] == lifetime
        assert spec["disruption"]["consolidationPolicy"] == "WhenEmpty"


def test_disruption_budget_is_ten_percent_of_a_pool() -> None:
    assert {"nodes": "10%"} in node_pool(SPOT)["spec"]["disruption"]["budgets"]


def test_drift_replaces_nodes_without_gpus_only() -> None:
    for pool in MINE:
        budgets = node_pool(pool)["spec"]["disruption"]["budgets"]
        assert ({"nodes": "0", "reasons": ["Drifted"]} in budgets) is (pool != CPU)


def test_nodepool_limits_are_the_pool_maximum() -> None:
    assert node_pool(ONDEMAND)["spec"]["limits"] == {"nodes": "4", "nvidia.com/gpu": str(4 * 8)}
    assert node_pool(SPOT)["spec"]["limits"] == {"nodes": "50", "nvidia.com/gpu": str(50 * 8)}
    assert node_pool(CPU)["spec"]["limits"] == {"nodes": "4"}


def test_only_spot_pools_with_a_fallback_buy_on_demand_nodes() -> None:
    capacity = "karpenter.sh/capacity-type"
    falling_back = dataclasses.replace(SPOT, fallback=Fallback.ON_DEMAND)
    assert requirement(falling_back, capacity) == ["spot", "on-demand"]
    assert requirement(SPOT, capacity) == ["spot"]
    assert requirement(ONDEMAND, capacity) == ["on-demand"]
    assert requirement(CPU, capacity) == ["on-demand"]


def test_pool_with_a_reservation_launches_reserved_capacity_only(made: Deployed) -> None:
    assert requirement(RESERVED, "karpenter.sh/capacity-type") == ["reserved"]
    terms = node_class(made, RESERVED)["capacityReservationSelectorTerms"]
    assert terms == [{"id": pools.BLOCK.id}]
    assert "capacityReservationSelectorTerms" not in node_class(made, ONDEMAND)


def test_nodes_have_the_types_and_zone_of_the_pool() -> None:
    assert requirement(SPOT, naming.INSTANCE_TYPE) == ["p4d.24xlarge", "p3dn.24xlarge"]
    assert requirement(SPOT, naming.ZONE) == ["us-east-1b"]


@pytest.mark.parametrize("pool", MINE, ids=lambda pool: pool.name)
def test_labels_and_taints_match_the_pool(pool: NodePool) -> None:
    template = node_pool(pool)["spec"]["template"]
    set_by_the_cloud = {naming.ZONE, naming.INSTANCE_TYPE}
    own = {k: v for k, v in pool.labels().items() if k not in set_by_the_cloud}
    assert template["metadata"]["labels"] == own
    assert template["spec"]["taints"] == [taint.manifest() for taint in pool.taints]


def test_nodes_start_in_the_pool_subnet_with_the_cluster_security_groups(
    made: Deployed, place: pools.Place
) -> None:
    own, efa = place.cluster.security_group, place.network.efa_security_group
    spot = node_class(made, SPOT)
    assert spot["subnetSelectorTerms"] == [{"id": place.network.private_subnets["us-east-1b"]}]
    assert spot["securityGroupSelectorTerms"] == [{"id": own}]
    assert node_class(made, ONDEMAND)["securityGroupSelectorTerms"] == [{"id": own}, {"id": efa}]
    assert spot["associatePublicIPAddress"] is False


def test_pods_cannot_reach_the_metadata_service(made: Deployed) -> None:
    for pool in MINE:
        options = node_class(made, pool)["metadataOptions"]
        assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", 1)


def test_root_volumes_are_encrypted_with_the_stack_key(made: Deployed, place: pools.Place) -> None:
    (mapping,) = node_class(made, ONDEMAND)["blockDeviceMappings"]
    assert mapping["ebs"]["encrypted"] is True
    assert mapping["ebs"]["kmsKeyID"] == place.key
    assert mapping["ebs"]["volumeSize"] == "500Gi"


def test_every_node_of_an_efa_pool_has_its_efa_interfaces(made: Deployed) -> None:
    found = node_class(made, ONDEMAND)["networkInterfaces"]
    assert [one["interfaceType"] for one in found] == ["interface", *["efa-only"] * 32]
    assert "networkInterfaces" not in node_class(made, SPOT)


def test_placement_group_is_created_for_the_pool_that_requests_it(made: Deployed) -> None:
    (group,) = made.all("aws:ec2/placementGroup:PlacementGroup")
    assert node_class(made, ONDEMAND)["placementGroupSelector"] == {"name": group.inputs["name"]}
    assert "placementGroupSelector" not in node_class(made, SPOT)


def test_ami_is_pinned_by_release_date() -> None:
    family, day = karpenter_manifests.IMAGE.split("@v")
    assert family == "al2023"
    assert len(day) == 8 and day.isdigit()


def test_nodes_get_the_node_role_through_the_stack_instance_profile(made: Deployed) -> None:
    profile = made.one("aws:iam/instanceProfile:InstanceProfile")
    assert profile.inputs["role"] == "ec2"
    assert node_class(made, SPOT)["instanceProfile"] == profile.outputs["name"]


def test_crds_are_a_separate_release_of_the_same_version(made: Deployed) -> None:
    crds, controller = (made.one(RELEASE, f"karpenter-{name}") for name in ("crd", "controller"))
    assert crds.inputs["chart"] == "oci://public.ecr.aws/karpenter/karpenter-crd"
    assert controller.inputs["skipCrds"] is True
    assert crds.inputs["version"] == controller.inputs["version"]
    assert "karpenter-crd" in controller.depends_on


def test_the_controller_listens_to_the_interruption_queue(made: Deployed) -> None:
    settings = made.one(RELEASE, "karpenter-controller").inputs["values"]["settings"]
    assert settings["interruptionQueue"] == made.one("aws:sqs/queue:Queue").outputs["name"]
    assert settings["clusterName"] == pools.CLUSTER
    assert settings["featureGates"] == {"nodeRepair": True}


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
    made: Deployed, place: pools.Place
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


def test_instance_store_becomes_one_array_where_a_type_has_it(made: Deployed) -> None:
    assert node_class(made, SPOT)["instanceStorePolicy"] == "RAID0"
    assert "instanceStorePolicy" not in node_class(made, CPU)
