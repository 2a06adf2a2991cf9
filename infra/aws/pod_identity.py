"""Who may act as a role through EKS Pod Identity: one service account, in words that IAM checks."""

from __future__ import annotations

from typing import Any


def trust(namespace: str, service_account: str) -> dict[str, Any]:
    """The trust policy of a role that only this service account's pods may assume.

    EKS tags each session with the pod's cluster, namespace and service account. A role that was
    associated with another account by mistake is thus refused.
    """
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "pods.eks.amazonaws.com"},
                "Action": ["sts:AssumeRole", "sts:TagSession"],
                "Condition": {
                    "StringEquals": {
                        "aws:RequestTag/kubernetes-namespace": namespace,
                        "aws:RequestTag/kubernetes-service-account": service_account,
                    }
                },
            }
        ],
    }
