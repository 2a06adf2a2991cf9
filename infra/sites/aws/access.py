"""Who may use the cluster's API: EKS access entries, never the ConfigMap aws-auth.

The principal that creates the cluster is its administrator from then on: pulumi_eks has EKS make that
entry, and one of ours for the same principal would be refused (ResourceInUseException). Beyond that:

- an admin has all rights. A pipeline that runs `pulumi up` over the whole stack is one: it installs
  operators, CustomResourceDefinitions and RBAC rules.
- a deployer is in the group `trainyard:deployer`, which each team's namespace binds to a Role: it may
  create and stop runs there. That is all that `pulumi up` needs while only run files have changed, since
  Pulumi asks the API about nothing else. On the AWS side it needs read access (`ReadOnlyAccess`, for
  previews) and the state's bucket and key. Whatever else has changed, its update is refused.
- a viewer may read everything in the cluster, secrets too, which a preview of the whole stack does.
- a node's role may register nodes, nothing else.
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
"""Type of a node role's entry; EKS gives it the groups of nodes."""


@dataclass(frozen=True, kw_only=True)
class AccessArgs:
    """ARNs of IAM principals (roles, rather than users), each of them in one place only."""

    cluster: pulumi.Input[str]
    admins: tuple[str, ...]
    """Without the one that creates the cluster."""
    deployers: tuple[str, ...]
    viewers: tuple[str, ...] = ()
    node_role_arn: pulumi.Input[str]


class Access(pulumi.ComponentResource):
    """An access entry for each principal.

    Raises ValueError for one that is two of these: EKS has one entry for a principal.
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
    """What tells a principal from others in a resource's name: account, path and name."""
    _, _, _, _, account, path = arn.split(":", 5)
    return f"{account}-{path.replace('/', '-')}"


def reject_duplicate_principals(arns: Sequence[str]) -> None:
    """Raises ValueError, in one line, if a principal is there twice."""
    for place, arn in enumerate(arns):
        if arn in arns[:place]:
            raise ValueError(f"{arn} has two of admin, deployer and viewer; name it in one of them")


def _with_policy(
    name: str,
    arn: str,
    policy: str,
    cluster: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """An entry whose rights are a policy of EKS, everywhere in the cluster."""
    entry = aws_eks.AccessEntry(name, cluster_name=cluster, principal_arn=arn, opts=opts)
    aws_eks.AccessPolicyAssociation(
        name,
        cluster_name=cluster,
        principal_arn=entry.principal_arn,
        policy_arn=policy,
        access_scope=aws_eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
        opts=opts,
    )
