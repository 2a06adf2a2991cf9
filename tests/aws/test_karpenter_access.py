"""Permissions of Karpenter's role, each with a denied counterpart."""

from __future__ import annotations

import pytest

from infra.sites.aws.karpenter_access import ControllerScope, controller_policy
from tests.aws import pools
from tests.aws.iam_evaluation import Request, allowed
from tests.aws.moto_cloud import ACCOUNT, REGION


def instance(cluster: str, **more: str) -> dict[str, str]:
    """Tags of an instance that Karpenter of a cluster launched, as IAM sees them."""
    return {
        f"aws:ResourceTag/kubernetes.io/cluster/{cluster}": "owned",
        "aws:ResourceTag/karpenter.sh/nodepool": "spot",
        **more,
    }


SCOPE = ControllerScope(
    cluster="training",
    region=REGION,
    account=ACCOUNT,
    subnets=["subnet-1"],
    security_groups=["sg-1"],
    placement_groups=["training-ondemand"],
    reservations=[pools.BLOCK.id],
    node_role_arn=f"arn:aws:iam::{ACCOUNT}:role/nodes",
    queue_arn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:q",
    data_key_arn=f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k",
)
EC2 = f"arn:aws:ec2:{REGION}:{ACCOUNT}"


def may(action: str, resource: str, **context: str) -> bool:
    request = Request(action=action, resource=resource, account=ACCOUNT, context=context)
    return allowed(request, identity=[controller_policy(SCOPE)], owner=ACCOUNT)


def test_karpenter_terminates_its_own_instances_only() -> None:
    own, other = instance("training"), instance("other")
    one = f"{EC2}:instance/i-1"
    assert may("ec2:TerminateInstances", one, **own)
    assert not may("ec2:TerminateInstances", one, **other)
    assert not may("ec2:TerminateInstances", one)
    managed = {"aws:ResourceTag/kubernetes.io/cluster/training": "owned"}
    assert not may("ec2:TerminateInstances", one, **managed)


def test_karpenter_cannot_tag_foreign_instances_as_its_own() -> None:
    tags = {
        "aws:RequestTag/kubernetes.io/cluster/training": "owned",
        "aws:RequestTag/karpenter.sh/nodepool": "spot",
    }
    one = f"{EC2}:instance/i-1"
    assert may("ec2:CreateTags", one, **tags, **{"ec2:CreateAction": "RunInstances"})
    assert not may("ec2:CreateTags", one, **tags)
    assert not may("ec2:CreateTags", one, **tags, **instance("other"))


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ("subnet/subnet-1", "subnet/subnet-2"),
        ("security-group/sg-1", "security-group/sg-2"),
        ("placement-group/training-ondemand", "placement-group/other"),
        (f"capacity-reservation/{pools.BLOCK.id}", f"capacity-reservation/{pools.HELD.id}"),
    ],
)
def test_karpenter_launches_into_cluster_subnets_and_groups_only(own: str, other: str) -> None:
    assert may("ec2:RunInstances", f"{EC2}:{own}")
    assert not may("ec2:RunInstances", f"{EC2}:{other}")


def test_karpenter_launches_nothing_without_the_cluster_tags() -> None:
    one = f"{EC2}:instance/*"
    assert may(
        "ec2:RunInstances",
        one,
        **{
            "aws:RequestTag/kubernetes.io/cluster/training": "owned",
            "aws:RequestTag/karpenter.sh/nodepool": "spot",
        },
    )
    assert not may("ec2:RunInstances", one)


def test_karpenter_passes_only_the_node_role_to_instances() -> None:
    to_ec2 = {"iam:PassedToService": "ec2.amazonaws.com"}
    assert may("iam:PassRole", SCOPE.node_role_arn, **to_ec2)
    assert not may("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/admin", **to_ec2)
    assert not may("iam:PassRole", SCOPE.node_role_arn, **{"iam:PassedToService": "eks"})


def test_karpenter_changes_nothing_in_iam() -> None:
    profile = f"arn:aws:iam::{ACCOUNT}:instance-profile/any"
    for action in ("CreateInstanceProfile", "AddRoleToInstanceProfile", "DeleteInstanceProfile"):
        assert not may(f"iam:{action}", profile)
    assert may("iam:GetInstanceProfile", profile)


def test_karpenter_reads_its_own_queue_and_sends_nothing() -> None:
    assert may("sqs:ReceiveMessage", SCOPE.queue_arn)
    assert not may("sqs:ReceiveMessage", f"arn:aws:sqs:{REGION}:{ACCOUNT}:other")
    assert not may("sqs:SendMessage", SCOPE.queue_arn)


def test_karpenter_uses_the_data_key_for_volumes_only() -> None:
    via = {"kms:ViaService": f"ec2.{REGION}.amazonaws.com"}
    assert may("kms:GenerateDataKeyWithoutPlaintext", SCOPE.data_key_arn, **via)
    assert not may("kms:Decrypt", SCOPE.data_key_arn)
    assert not may("kms:CreateGrant", SCOPE.data_key_arn, **via)
