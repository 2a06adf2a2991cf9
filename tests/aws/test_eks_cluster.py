"""The cluster and its nodes, as the cloud has them once the program ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.aws.clusters import ADMIN, DEPLOYER, DRIFT, MEMBER, VIEWER, program
from tests.aws.moto_cloud import Cloud, Deployed, deployed_once
from tests.aws.moto_cloud.deploying import DEFAULT_TAGS


@pytest.fixture(scope="module")
def stack() -> Iterator[Deployed]:
    yield from deployed_once(program)


@pytest.fixture
def cloud(stack: Deployed) -> Cloud:
    return stack.cloud


@pytest.fixture
def cluster(cloud: Cloud) -> dict[str, Any]:
    return cloud.cluster("training")


def asked(stack: Deployed) -> Any:
    """Inputs of the remote component."""
    return stack.one("eks:index:Cluster").inputs


def test_the_control_plane_is_in_the_private_subnets_of_two_zones(
    cluster: dict[str, Any], cloud: Cloud, stack: Deployed
) -> None:
    subnets = cloud.subnets(cluster["resourcesVpcConfig"]["subnetIds"])
    names = {t["Value"] for s in subnets for t in s["Tags"] if t["Key"] == "Name"}
    assert names == {"training-private-us-east-1a", "training-private-us-east-1b"}
    assert cluster["version"] == "1.35"


def test_data_key_allows_volume_encryption_in_this_account_only(stack: Deployed) -> None:
    policy = json.loads(stack.one("aws:kms/key:Key", "keys-data").inputs["policy"])
    open_to_all = [s for s in policy["Statement"] if s["Principal"] == {"AWS": "*"}]
    assert open_to_all
    for statement in open_to_all:
        limits = statement["Condition"]["StringEquals"]
        assert limits["kms:CallerAccount"] == "123456789012"
        assert "ec2.us-east-1.amazonaws.com" in limits["kms:ViaService"]


def test_cluster_security_group_is_the_one_created_by_eks(
    stack: Deployed, cluster: dict[str, Any]
) -> None:
    assert asked(stack)["skipDefaultSecurityGroups"] is True
    record = stack.result["record"]
    assert record["security_group"] == cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]
    assert record["endpoint"] == cluster["endpoint"]
    assert record["certificate_authority"] == cluster["certificateAuthority"]["data"]
    assert cluster["endpoint"] in record["kubeconfig"]


def test_access_uses_entries_instead_of_the_aws_auth_config_map(stack: Deployed) -> None:
    assert asked(stack)["authenticationMode"] == "API"
    assert not {"roleMappings", "userMappings", "instanceRoles"} & set(asked(stack))
    assert not [one for one in stack.created if one.type.startswith("kubernetes:")]
    role = stack.result["record"]["node_role_arn"]
    entries = {
        one.inputs["principalArn"]: (
            one.inputs.get("type"),
            one.inputs.get("kubernetesGroups"),
        )
        for one in stack.all("aws:eks/accessEntry:AccessEntry")
    }
    assert entries == {
        ADMIN: (None, None),
        DEPLOYER: (None, ["trainyard:deployer"]),
        VIEWER: (None, ["trainyard:viewer"]),
        DRIFT: (None, None),
        MEMBER: (None, ["trainyard:research:researcher", "trainyard:vision:lead"]),
        role: ("EC2_LINUX", None),
    }


def test_only_drift_detection_reads_everything_and_viewers_get_no_policy_of_eks(
    stack: Deployed,
) -> None:
    associations = stack.all("aws:eks/accessPolicyAssociation:AccessPolicyAssociation")
    policies = {a.inputs["principalArn"]: a.inputs["policyArn"] for a in associations}
    assert {arn: policy.rpartition("/")[2] for arn, policy in policies.items()} == {
        ADMIN: "AmazonEKSClusterAdminPolicy",
        DRIFT: "AmazonEKSAdminViewPolicy",
    }
    assert all(a.inputs["accessScope"] == {"type": "cluster"} for a in associations)


def test_node_role_may_only_join_the_cluster_and_pull_images(stack: Deployed, cloud: Cloud) -> None:
    role = stack.result["record"]["node_role_name"]
    attached = cloud.iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
    assert {policy["PolicyName"] for policy in attached} == {
        "AmazonEKSWorkerNodeMinimalPolicy",
        "AmazonEC2ContainerRegistryPullOnly",
    }
    assert cloud.iam.list_role_policies(RoleName=role)["PolicyNames"] == []
    assert cloud.role(stack.result["record"]["node_role_arn"], trusting="ec2.amazonaws.com")


def test_every_resource_uses_the_explicit_provider_and_has_the_stack_tags(
    stack: Deployed, cluster: dict[str, Any], cloud: Cloud
) -> None:
    own = [one for one in stack.created if one.type.startswith(("aws:", "eks:"))]
    assert {one.provider for one in own} == {"aws", "aws, cluster"}
    assert DEFAULT_TAGS.items() <= cluster["tags"].items()
    for role in stack.all("aws:iam/role:Role"):
        tags = cloud.iam.list_role_tags(RoleName=role.id)["Tags"]
        assert {"Key": "trainyard.dev/stack", "Value": "test"} in tags
