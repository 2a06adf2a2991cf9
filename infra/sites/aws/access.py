"""Access to the cluster's API: EKS access entries, never the ConfigMap aws-auth.

EKS makes the principal that creates the cluster its administrator; a second entry for that principal fails
with ResourceInUseException. Other principals:

- an admin has all rights. A pipeline that runs `pulumi up` over the whole stack is one: it installs
  operators, CustomResourceDefinitions and RBAC rules.
- a deployer is in the group `trainyard:deployer`, which each team's namespace binds to a Role: it may
  create and stop runs there. That suffices for `pulumi up` while only run files have changed, since Pulumi
  requests nothing else from the API. In AWS it needs read access (`ReadOnlyAccess`, for previews) and the
  state's bucket and key. Updates that change anything else are rejected.
- a viewer is in the group `trainyard:viewer`, which reads nodes, queues, roles and admission policies, and
  nothing in a namespace: no Secret, no log. Anyone who can open a branch can run its program as this role.
  Kubernetes' `view` and EKS's view policies are wider: they read the logs of every team.
- a member of teams is in their groups, such as `trainyard:research:researcher`. The API server knows each
  person by the name of the role's session, which is what `launched-by` records.
- a drift detector may read everything in the cluster, including Secrets, since `pulumi refresh` reads every object
  of the stack. Its role must trust the main branch only.
- a node's role may only register nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pulumi
import pulumi_aws.eks as aws_eks

from infra.domain import naming
from infra.sections.cluster import EksClusterConfig
from infra.sites.aws.outputs import component

_POLICIES: Final = "arn:aws:eks::aws:cluster-access-policy"
ADMIN_POLICY: Final = f"{_POLICIES}/AmazonEKSClusterAdminPolicy"
VIEW_POLICY: Final = f"{_POLICIES}/AmazonEKSAdminViewPolicy"
"""Reads all objects, Secrets included."""
NODES: Final = "EC2_LINUX"
"""Type of a node role's entry; EKS adds the groups of nodes."""


def access(
    name: str,
    cluster: pulumi.Input[str],
    settings: EksClusterConfig,
    members: Mapping[str, tuple[str, ...]],
    node_role_arn: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> pulumi.Resource:
    """Create an access entry for each principal, and return the one that lets nodes join.

    `settings`: ARNs of IAM principals (roles rather than users); admins exclude the one that creates the cluster.
    `members`: groups of teams by principal, `trainyard:TEAM:researcher`. Raises ValueError for a principal in two
    lists: EKS allows one entry per principal.
    """
    listed = (settings.admins, settings.deployers, settings.viewers, settings.drift_detectors)
    reject_duplicate_principals([*(arn for arns in listed for arn in arns), *members])
    child = pulumi.ResourceOptions(parent=component("AwsAccess", name, opts))
    for arn in settings.admins:
        _with_policy(f"{name}-admin-{principal(arn)}", arn, ADMIN_POLICY, cluster, child)
    for arn in settings.drift_detectors:
        _with_policy(f"{name}-drift-{principal(arn)}", arn, VIEW_POLICY, cluster, child)
    for role, groups in (
        ("deployer", dict.fromkeys(settings.deployers, (naming.DEPLOYER_GROUP,))),
        ("viewer", dict.fromkeys(settings.viewers, (naming.VIEWER_GROUP,))),
        ("member", members),
    ):
        for arn, names in groups.items():
            aws_eks.AccessEntry(
                f"{name}-{role}-{principal(arn)}",
                cluster_name=cluster,
                principal_arn=arn,
                kubernetes_groups=list(names),
                opts=child,
            )
    return aws_eks.AccessEntry(
        f"{name}-nodes",
        cluster_name=cluster,
        principal_arn=node_role_arn,
        type=NODES,
        opts=child,
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
                f"{arn} is listed in two of admins, deployers, viewers, drift detectors and members; "
                "keep it in one of them"
            )


def _with_policy(
    name: str,
    arn: str,
    policy: str,
    cluster: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Create an entry with a policy of EKS, cluster-wide."""
    entry = aws_eks.AccessEntry(name, cluster_name=cluster, principal_arn=arn, opts=opts)
    aws_eks.AccessPolicyAssociation(
        name,
        cluster_name=cluster,
        principal_arn=entry.principal_arn,
        policy_arn=policy,
        access_scope=aws_eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
        opts=opts,
    )
