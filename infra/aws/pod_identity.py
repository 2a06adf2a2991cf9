"""Who may act as a role through EKS Pod Identity: one service account of one cluster."""

from __future__ import annotations

from typing import Any


def cluster_arn(account: str, region: str, cluster: str) -> str:
    """ARN of an EKS cluster."""
    return f"arn:aws:eks:{region}:{account}:cluster/{cluster}"


def trust(cluster: str, namespace: str, service_account: str) -> dict[str, Any]:
    """The trust policy of a role that only this service account's pods may assume.

    `cluster` is an ARN. EKS tags each session with the pod's cluster, namespace and service account,
    so that a role which was associated with another account by mistake is refused.
    """
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "PodsOfTheServiceAccount",
                "Effect": "Allow",
                "Principal": {"Service": "pods.eks.amazonaws.com"},
                "Action": ["sts:AssumeRole", "sts:TagSession"],
                "Condition": {
                    "StringEquals": {
                        "aws:RequestTag/eks-cluster-arn": cluster,
                        "aws:RequestTag/kubernetes-namespace": namespace,
                        "aws:RequestTag/kubernetes-service-account": service_account,
                    }
                },
            }
        ],
    }
