"""EKS add-ons: order, versions and AWS permissions."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.aws.clusters import program
from tests.aws.moto_cloud import ACCOUNT, Cloud, Deployed, deployed_once


@pytest.fixture(scope="module")
def stack() -> Iterator[Deployed]:
    yield from deployed_once(program)


@pytest.fixture
def cloud(stack: Deployed) -> Cloud:
    return stack.cloud


def order(stack: Deployed) -> list[str]:
    """Add-ons and node groups as they were created."""
    return [
        one.inputs.get("addonName", "nodes")
        for one in stack.created
        if one.type in ("aws:eks/addon:Addon", "aws:eks/nodeGroup:NodeGroup")
    ]


def test_network_add_ons_precede_nodes_and_pod_add_ons_follow(
    stack: Deployed,
) -> None:
    before, after = order(stack), order(stack)
    nodes = before.index("nodes")
    assert set(before[:nodes]) == {"eks-pod-identity-agent", "kube-proxy", "vpc-cni"}
    assert set(after[nodes + 1 :]) == {
        "coredns",
        "metrics-server",
        "eks-node-monitoring-agent",
        "aws-fsx-csi-driver",
        "aws-efs-csi-driver",
    }


def test_vpc_cni_has_its_own_role(stack: Deployed, cloud: Cloud) -> None:
    plugin = stack.one("aws:eks/addon:Addon", "networking-vpc-cni")
    (association,) = plugin.inputs["podIdentityAssociations"]
    assert association["serviceAccount"] == "aws-node"
    role = association["roleArn"].rpartition("/")[2]
    attached = cloud.iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
    assert [policy["PolicyName"] for policy in attached] == ["AmazonEKS_CNI_Policy"]


@pytest.mark.parametrize(
    ("addon", "account"),
    [
        ("networking-vpc-cni", "aws-node"),
        ("addons-aws-efs-csi-driver", "efs-csi-controller-sa"),
    ],
)
def test_add_on_role_trusts_one_service_account_of_this_cluster(
    stack: Deployed, cloud: Cloud, addon: str, account: str
) -> None:
    (association,) = stack.one("aws:eks/addon:Addon", addon).inputs["podIdentityAssociations"]
    role = cloud.role(association["roleArn"], trusting="pods.eks.amazonaws.com")
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Condition"]["StringEquals"] == {
        "aws:RequestTag/eks-cluster-arn": f"arn:aws:eks:us-east-1:{ACCOUNT}:cluster/training",
        "aws:RequestTag/kubernetes-namespace": "kube-system",
        "aws:RequestTag/kubernetes-service-account": account,
    }


def test_add_on_pods_cannot_reach_buckets(cloud: Cloud) -> None:
    for role in cloud.iam.list_roles()["Roles"]:
        for policy in cloud.iam.list_attached_role_policies(RoleName=role["RoleName"])[
            "AttachedPolicies"
        ]:
            version = cloud.iam.get_policy(PolicyArn=policy["PolicyArn"])["Policy"]
            found = cloud.iam.get_policy_version(
                PolicyArn=policy["PolicyArn"], VersionId=version["DefaultVersionId"]
            )["PolicyVersion"]["Document"]
            assert '"s3:' not in json.dumps(found), policy["PolicyName"]
