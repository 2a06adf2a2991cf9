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


def test_the_endpoint_is_private_unless_cidrs_are_listed(cluster: dict[str, Any]) -> None:
    access = cluster["resourcesVpcConfig"]
    assert access["endpointPrivateAccess"] is True
    assert access["endpointPublicAccess"] is False


def test_private_endpoint_is_reachable_from_the_vpc(stack: Deployed) -> None:
    """EKS' own group lets in its members only: no runner of updates is one."""
    (rule,) = [
        one.inputs
        for one in stack.all("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
        if one.inputs.get("description") == "Kubernetes API, from the VPC"
    ]
    assert rule["cidrIpv4"] == stack.one("aws:ec2/vpc:Vpc").inputs["cidrBlock"]
    assert (rule["fromPort"], rule["toPort"], rule["ipProtocol"]) == (443, 443, "tcp")


def test_all_five_control_plane_logs_go_to_a_group_with_retention(
    cluster: dict[str, Any], cloud: Cloud, stack: Deployed
) -> None:
    (logging,) = [one for one in cluster["logging"]["clusterLogging"] if one["enabled"]]
    assert set(logging["types"]) == {
        "api",
        "audit",
        "authenticator",
        "controllerManager",
        "scheduler",
    }
    groups = cloud.client("logs").describe_log_groups(logGroupNamePrefix="/aws/eks")["logGroups"]
    assert [(g["logGroupName"], g["retentionInDays"]) for g in groups] == [
        ("/aws/eks/training/cluster", 90)
    ]
    # Else EKS makes it first, without an end.
    assert "cluster-logs" in stack.one("eks:index:Cluster").depends_on


def test_secrets_are_encrypted_with_a_rotated_customer_managed_key(
    cluster: dict[str, Any], cloud: Cloud, stack: Deployed
) -> None:
    (config,) = cluster["encryptionConfig"]
    key = stack.one("aws:kms/key:Key", "keys-cluster")
    assert config["provider"]["keyArn"] == key.outputs["arn"]
    assert config["resources"] == ["secrets"]
    assert cloud.client("kms").get_key_rotation_status(KeyId=key.id)["KeyRotationEnabled"]


def test_keys_are_protected_and_deleted_after_a_waiting_period(stack: Deployed) -> None:
    keys = stack.all("aws:kms/key:Key")
    assert {key.name for key in keys} == {"keys-cluster", "keys-data"}
    assert all(key.protect and key.retain_on_delete for key in keys)
    assert {key.inputs["deletionWindowInDays"] for key in keys} == {30}


def test_data_key_allows_volume_encryption_in_this_account_only(stack: Deployed) -> None:
    policy = json.loads(stack.one("aws:kms/key:Key", "keys-data").inputs["policy"])
    open_to_all = [s for s in policy["Statement"] if s["Principal"] == {"AWS": "*"}]
    assert open_to_all
    for statement in open_to_all:
        limits = statement["Condition"]["StringEquals"]
        assert limits["kms:CallerAccount"] == "123456789012"
        assert "ec2.us-east-1.amazonaws.com" in limits["kms:ViaService"]


def test_cluster_has_deletion_protection_and_no_default_nodes_or_oidc_provider(
    stack: Deployed,
) -> None:
    inputs = asked(stack)
    assert inputs["deletionProtection"] is True
    assert stack.one("eks:index:Cluster").protect
    assert inputs["skipDefaultNodeGroup"] is True
    assert inputs["createOidcProvider"] is False
    assert inputs["createInstanceRole"] is False


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


def test_system_nodes_are_on_demand_cpu_nodes_in_every_zone(
    cloud: Cloud, cluster: dict[str, Any]
) -> None:
    (name,) = cloud.client("eks").list_nodegroups(clusterName="training")["nodegroups"]
    group = cloud.client("eks").describe_nodegroup(clusterName="training", nodegroupName=name)
    found = group["nodegroup"]
    assert found["capacityType"] == "ON_DEMAND"
    assert found["amiType"] == "AL2023_x86_64_STANDARD"
    assert found["instanceTypes"] == ["m6i.xlarge"]
    assert found["scalingConfig"] == {"minSize": 2, "maxSize": 4, "desiredSize": 2}
    assert set(found["subnets"]) == set(cluster["resourcesVpcConfig"]["subnetIds"])
    taint = {"key": "CriticalAddonsOnly", "value": "true", "effect": "NO_SCHEDULE"}
    assert found["taints"] == [taint]


def test_system_nodes_block_pod_access_to_imds_and_encrypt_disks(
    cloud: Cloud, stack: Deployed
) -> None:
    template = stack.one("aws:ec2/launchTemplate:LaunchTemplate").id
    (version,) = cloud.ec2.describe_launch_template_versions(LaunchTemplateId=template)[
        "LaunchTemplateVersions"
    ]
    data = version["LaunchTemplateData"]
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    (root,) = data["BlockDeviceMappings"]
    key = stack.one("aws:kms/key:Key", "keys-data").outputs["arn"]
    assert (root["Ebs"]["VolumeType"], root["Ebs"]["Encrypted"]) == ("gp3", True)
    assert root["Ebs"]["KmsKeyId"] == key
    tags = {one["ResourceType"]: one["Tags"] for one in data["TagSpecifications"]}
    assert {"Key": "cost-center", "Value": "research"} in tags["instance"]
    assert {"Key": "cost-center", "Value": "research"} in tags["volume"]
    assert data["SecurityGroupIds"] == [stack.result["record"]["security_group"]]


def test_every_resource_uses_the_explicit_provider_and_has_the_stack_tags(
    stack: Deployed, cluster: dict[str, Any], cloud: Cloud
) -> None:
    own = [one for one in stack.created if one.type.startswith(("aws:", "eks:"))]
    assert {one.provider for one in own} == {"aws", "aws, cluster"}
    assert DEFAULT_TAGS.items() <= cluster["tags"].items()
    for role in stack.all("aws:iam/role:Role"):
        tags = cloud.iam.list_role_tags(RoleName=role.id)["Tags"]
        assert {"Key": "trainyard.dev/stack", "Value": "test"} in tags
