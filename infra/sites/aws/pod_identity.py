"""EKS Pod Identity: a role for one service account of one cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_aws.eks as aws_eks
from pulumi_aws import iam

from infra.sites.aws.outputs import ClusterRecord
from infra.sites.aws.policy_documents import Document, document


def trust_policy(cluster: str, namespace: str, service_account: str) -> dict[str, Any]:
    """Return the trust policy of a role that only this service account's pods may assume.

    `cluster` is an ARN. EKS tags each session with the pod's cluster, namespace and service account, so a role
    associated with another account by mistake is rejected.
    """
    return document(
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
    )


def role_of(
    resource_name: str,
    cluster: ClusterRecord,
    service_account: tuple[str, str],
    description: str,
    opts: pulumi.ResourceOptions,
    **more: Any,
) -> iam.Role:
    """Create a role that only pods of the service account (namespace, name) may assume. `more`: of iam.Role."""
    trust = json.dumps(trust_policy(cluster.arn, *service_account))
    return iam.Role(
        resource_name, description=description, assume_role_policy=trust, opts=opts, **more
    )


def controller(
    name: str,
    cluster: ClusterRecord,
    service_account: tuple[str, str],
    description: str,
    policy: tuple[str, str, Document],
    opts: pulumi.ResourceOptions,
    *,
    role: str = "role",
) -> iam.Role:
    """Create the role of a controller's pods with one policy, and associate it with their service account.

    `policy`: suffix of the resource's name, the policy's name, its document. `role`: suffix of the role's name.
    """
    made = role_of(f"{name}-{role}", cluster, service_account, description, opts)
    suffix, policy_name, content = policy
    attached = iam.RolePolicy(
        f"{name}-{suffix}",
        name=policy_name,
        role=made.name,
        policy=json.dumps(content),
        opts=opts,
    )
    assert opts.parent
    associate(f"{name}-association", cluster, service_account, made, [attached], opts.parent)
    return made


def associate(
    name: str,
    cluster: ClusterRecord,
    service_account: tuple[str, str],
    assumed: iam.Role,
    permissions: Sequence[pulumi.Resource],
    parent: pulumi.Resource,
) -> None:
    """Associate the role with a service account (namespace, name) after its permissions exist.

    A pod that starts before that would fail.
    """
    namespace, account = service_account
    aws_eks.PodIdentityAssociation(
        name,
        cluster_name=cluster.created_name,
        namespace=namespace,
        service_account=account,
        role_arn=assumed.arn,
        opts=pulumi.ResourceOptions(parent=parent, depends_on=list(permissions)),
    )
