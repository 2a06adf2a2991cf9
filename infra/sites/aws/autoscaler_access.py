"""What Cluster Autoscaler may do in the account: see all groups, change the sizes of its cluster's own."""

from __future__ import annotations

from typing import Any, Final

_READS: Final = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "autoscaling:DescribeTags",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
)


def autoscaler_policy(account: str, region: str, cluster: str) -> dict[str, Any]:
    """The autoscaler's permissions; EKS puts the tag that they hinge on onto each group of its own."""
    groups = f"arn:aws:autoscaling:{region}:{account}:autoScalingGroup:*"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "SeeGroupsAndTypes",
                "Effect": "Allow",
                "Action": list(_READS),
                "Resource": "*",
                "Condition": {"StringEquals": {"aws:RequestedRegion": region}},
            },
            {
                "Sid": "SeeNodeGroups",
                "Effect": "Allow",
                "Action": "eks:DescribeNodegroup",
                "Resource": f"arn:aws:eks:{region}:{account}:nodegroup/{cluster}/*",
            },
            {
                "Sid": "ResizeOwnGroups",
                "Effect": "Allow",
                "Action": [
                    "autoscaling:SetDesiredCapacity",
                    "autoscaling:TerminateInstanceInAutoScalingGroup",
                ],
                "Resource": groups,
                "Condition": {
                    "StringEquals": {
                        f"aws:ResourceTag/k8s.io/cluster-autoscaler/{cluster}": "owned"
                    }
                },
            },
        ],
    }
