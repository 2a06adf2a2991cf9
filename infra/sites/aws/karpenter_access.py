"""Karpenter's IAM policy: launch instances into this cluster and terminate those instances only.

Conditions require the tags that Karpenter sets on everything it creates. Without them the policy would cover
other clusters' nodes and all instances of the account.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.sites.aws.policy_documents import document

Statement = dict[str, Any]

_READS: Final = (
    "AvailabilityZones",
    "CapacityReservations",
    "Images",
    "InstanceStatus",
    "InstanceTypeOfferings",
    "InstanceTypes",
    "Instances",
    "LaunchTemplates",
    "PlacementGroups",
    "SecurityGroups",
    "SpotPriceHistory",
    "Subnets",
)
_MADE: Final = (
    "fleet",
    "instance",
    "launch-template",
    "network-interface",
    "spot-instances-request",
    "volume",
)


@dataclass(frozen=True, kw_only=True)
class ControllerScope:
    """Resources of the policy, as plain strings so that tests can evaluate the document."""

    cluster: str
    region: str
    account: str
    subnets: Sequence[str]
    security_groups: Sequence[str]
    """Ids of subnets and security groups that nodes may use."""
    placement_groups: Sequence[str]
    """Names."""
    reservations: Sequence[str]
    """Ids."""
    node_role_arn: str
    queue_arn: str
    data_key_arn: str

    def ec2(self, kind: str, id_: str = "*", *, account: str | None = None) -> str:
        """Return an ARN of EC2 resources; `account` is empty for public resources."""
        owner = self.account if account is None else account
        return f"arn:aws:ec2:{self.region}:{owner}:{kind}/{id_}"

    def own(self, key: str) -> dict[str, Any]:
        """Return the condition that the request or resource has the tags of this cluster's Karpenter."""
        return {
            "StringEquals": {f"aws:{key}/kubernetes.io/cluster/{self.cluster}": "owned"},
            "StringLike": {f"aws:{key}/karpenter.sh/nodepool": "*"},
        }


def controller_policy(scope: ControllerScope) -> dict[str, Any]:
    return document(
        *_launching(scope),
        *_tagging(scope),
        _ending(scope),
        *_reading(scope),
        _interruptions(scope),
        _passing_the_node_role(scope),
        *_encrypting(scope),
    )


def _launching(scope: ControllerScope) -> list[Statement]:
    launch = ["ec2:RunInstances", "ec2:CreateFleet"]
    ingredients = [
        scope.ec2("image", account=""),
        scope.ec2("snapshot", account=""),
        *(scope.ec2("subnet", one) for one in scope.subnets),
        *(scope.ec2("security-group", one) for one in scope.security_groups),
        *(scope.ec2("placement-group", one) for one in scope.placement_groups),
        # A reservation may be shared by another account.
        *(scope.ec2("capacity-reservation", one, account="*") for one in scope.reservations),
    ]
    return [
        {
            "Sid": "LaunchIntoTheCluster",
            "Effect": "Allow",
            "Action": launch,
            "Resource": ingredients,
        },
        {
            "Sid": "LaunchByOwnTemplates",
            "Effect": "Allow",
            "Action": launch,
            "Resource": scope.ec2("launch-template"),
            "Condition": scope.own("ResourceTag"),
        },
        {
            "Sid": "LaunchTagged",
            "Effect": "Allow",
            "Action": [*launch, "ec2:CreateLaunchTemplate"],
            "Resource": [scope.ec2(kind) for kind in _MADE],
            "Condition": scope.own("RequestTag"),
        },
    ]


def _tagging(scope: ControllerScope) -> list[Statement]:
    creating = scope.own("RequestTag")
    creating["StringEquals"]["ec2:CreateAction"] = [
        "RunInstances",
        "CreateFleet",
        "CreateLaunchTemplate",
    ]
    later = scope.own("ResourceTag")
    later["StringEqualsIfExists"] = {"aws:RequestTag/eks:eks-cluster-name": scope.cluster}
    later["ForAllValues:StringEquals"] = {
        "aws:TagKeys": ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]
    }
    return [
        {
            "Sid": "TagWhileCreating",
            "Effect": "Allow",
            "Action": "ec2:CreateTags",
            "Resource": [scope.ec2(kind) for kind in _MADE],
            "Condition": creating,
        },
        {
            "Sid": "NameOwnInstances",
            "Effect": "Allow",
            "Action": "ec2:CreateTags",
            "Resource": scope.ec2("instance"),
            "Condition": later,
        },
    ]


def _ending(scope: ControllerScope) -> Statement:
    return {
        "Sid": "EndOwn",
        "Effect": "Allow",
        "Action": ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
        "Resource": [scope.ec2("instance"), scope.ec2("launch-template")],
        "Condition": scope.own("ResourceTag"),
    }


def _reading(scope: ControllerScope) -> list[Statement]:
    images = f"arn:aws:ssm:{scope.region}::parameter/aws/service/eks/optimized-ami/*"
    return [
        {
            "Sid": "ReadTheRegion",
            "Effect": "Allow",
            "Action": [f"ec2:Describe{what}" for what in _READS],
            "Resource": "*",
            "Condition": {"StringEquals": {"aws:RequestedRegion": scope.region}},
        },
        {
            "Sid": "ReadImageIds",
            "Effect": "Allow",
            "Action": "ssm:GetParameter",
            "Resource": images,
        },
        {
            # Price lists and the list of profiles support no resource restriction. Profiles are only read:
            # the stack creates the one that nodes use.
            "Sid": "ReadPricesAndProfiles",
            "Effect": "Allow",
            "Action": ["pricing:GetProducts", "iam:GetInstanceProfile", "iam:ListInstanceProfiles"],
            "Resource": "*",
        },
        {
            "Sid": "ReadTheCluster",
            "Effect": "Allow",
            "Action": "eks:DescribeCluster",
            "Resource": f"arn:aws:eks:{scope.region}:{scope.account}:cluster/{scope.cluster}",
        },
    ]


def _interruptions(scope: ControllerScope) -> Statement:
    return {
        "Sid": "HearOfInterruptions",
        "Effect": "Allow",
        "Action": ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueUrl"],
        "Resource": scope.queue_arn,
    }


def _passing_the_node_role(scope: ControllerScope) -> Statement:
    return {
        "Sid": "GiveNodesTheirRole",
        "Effect": "Allow",
        "Action": "iam:PassRole",
        "Resource": scope.node_role_arn,
        "Condition": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
    }


def _encrypting(scope: ControllerScope) -> list[Statement]:
    via_ec2 = {"kms:ViaService": f"ec2.{scope.region}.amazonaws.com"}
    return [
        {
            "Sid": "EncryptRootVolumes",
            "Effect": "Allow",
            "Action": ["kms:DescribeKey", "kms:Decrypt", "kms:GenerateDataKeyWithoutPlaintext"],
            "Resource": scope.data_key_arn,
            "Condition": {"StringEquals": via_ec2},
        },
        {
            "Sid": "LetVolumesUseTheKey",
            "Effect": "Allow",
            "Action": "kms:CreateGrant",
            "Resource": scope.data_key_arn,
            "Condition": {
                "StringEquals": via_ec2,
                "Bool": {"kms:GrantIsForAWSResource": "true"},
            },
        },
    ]
