"""Access to the cluster's API: EKS access entries, never the ConfigMap aws-auth.

EKS makes the principal that creates the cluster its administrator; a second entry for that principal fails
with ResourceInUseException. Other principals:

- an admin has all rights. A pipeline that runs `pulumi up` over the whole stack is one: it installs
  operators, CustomResourceDefinitions and RBAC rules.
- a deployer is in the group `trainyard:deployer`, which each team's namespace binds to a Role: it may
  create and stop runs there. That suffices for `pulumi up` while only run files have changed, since Pulumi
  requests nothing else from the API. In AWS it needs read access (`ReadOnlyAccess`, for previews) and the
  state's bucket and key. Updates that change anything else are rejected.
- a viewer may read everything in the cluster, including Secrets, as a preview of the whole stack does.
- a node's role may only register nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws.eks as aws_eks

from infra.domain import naming

_POLICIES: Final = "arn:aws:eks::aws:cluster-access-policy"
ADMIN_POLICY: Final = f"{_POLICIES}/AmazonEKSClusterAdminPolicy"
VIEW_POLICY: Final = f"{_POLICIES}/AmazonEKSAdminViewPolicy"
NODES: Final = "EC2_LINUX"
"""Type of a node role's entry; EKS adds the groups of nodes."""


@dataclass(frozen=True, kw_only=True)
class AccessArgs:
    """ARNs of IAM principals (roles rather than users), each in one list only."""

    cluster: pulumi.Input[str]
    admins: tuple[str, ...]
    """Excludes the principal that creates the cluster."""
    deployers: tuple[str, ...]
    viewers: tuple[str, ...] = ()
    node_role_arn: pulumi.Input[str]


class Access(pulumi.ComponentResource):
    """An access entry for each principal.

    Raises ValueError for a principal in two lists: EKS allows one entry per principal.
    """

    nodes: pulumi.Resource
    """The entry that lets nodes join."""

    def __init__(self, name: str, args: AccessArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsAccess"), name, None, opts)
        reject_duplicate_principals((*args.admins, *args.deployers, *args.viewers))
        child = pulumi.ResourceOptions(parent=self)
        for arn in args.admins:
            _with_policy(f"{name}-admin-{principal(arn)}", arn, ADMIN_POLICY, args.cluster, child)
        for arn in args.viewers:
            _with_policy(f"{name}-viewer-{principal(arn)}", arn, VIEW_POLICY, args.cluster, child)
        for arn in args.deployers:
            aws_eks.AccessEntry(
                f"{name}-deployer-{principal(arn)}",
                cluster_name=args.cluster,
                principal_arn=arn,
                kubernetes_groups=[naming.DEPLOYER_GROUP],
                opts=child,
            )
        self.nodes = aws_eks.AccessEntry(
            f"{name}-nodes",
            cluster_name=args.cluster,
            principal_arn=args.node_role_arn,
            type=NODES,
            opts=child,
        )
        self.register_outputs(
            {
                "admins": list(args.admins),
                "deployers": list(args.deployers),
                "viewers": list(args.viewers),
            }
        )


def principal(arn: str) -> str:
    """Return the part of a resource's name that identifies a principal: account, path and name."""
    _, _, _, _, account, path = arn.split(":", 5)
    return f"{account}-{path.replace('/', '-')}"


def reject_duplicate_principals(arns: Sequence[str]) -> None:
    """Raise ValueError if a principal is listed twice."""
    for place, arn in enumerate(arns):
        if arn in arns[:place]:
            raise ValueError(
                f"{arn} is listed in two of admins, deployers and viewers; keep it in one of them"
            )


def _with_policy(
    name: str,
    arn: str,
    policy: str,
    cluster: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Return an entry with a policy of EKS, cluster-wide."""
    entry = aws_eks.AccessEntry(name, cluster_name=cluster, principal_arn=arn, opts=opts)
    aws_eks.AccessPolicyAssociation(
        name,
        cluster_name=cluster,
        principal_arn=entry.principal_arn,
        policy_arn=policy,
        access_scope=aws_eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
        opts=opts,
    )
