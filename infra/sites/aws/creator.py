"""The role that creates the cluster must not be listed: EKS makes it an administrator and refuses a second entry.

EKS would refuse the entry after the control plane exists, some ten minutes into the first update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pulumi
import pulumi_aws
import pulumi_aws.eks as aws_eks

from infra.sections.cluster import EksClusterConfig

_ASSUMED: Final = ":assumed-role/"


def listed_roles(
    cluster: EksClusterConfig, members: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """Return where the stack file lists each IAM role, by ARN."""
    keys = {
        "cluster.admins": cluster.admins,
        "cluster.deployers": cluster.deployers,
        "cluster.viewers": cluster.viewers,
        "cluster.driftDetectors": cluster.drift_detectors,
        "teams[].members": tuple(members),
    }
    return {arn: key for key, arns in keys.items() for arn in arns}


def role_of(caller: str, roles: Mapping[str, str]) -> str | None:
    """Return the one of these roles that the caller has assumed; None: none of them.

    `caller`: ARN from STS, which leaves the role's path out. Names of roles are unique in their account.
    """
    if _ASSUMED not in caller:
        return caller if caller in roles else None
    account, name = caller.split(":")[4], caller.partition(_ASSUMED)[2].partition("/")[0]
    return next(
        (arn for arn in roles if arn.split(":")[4] == account and arn.rpartition("/")[2] == name),
        None,
    )


def check_creator(
    cluster: EksClusterConfig,
    members: Mapping[str, tuple[str, ...]],
    provider: pulumi.ProviderResource,
) -> None:
    """Refuse an update that would create the cluster as a role that the stack file lists.

    A preview only warns, where the role is an admin: roles of other lists run previews and no updates. Raises
    pulumi.RunError.
    """
    asking = pulumi.InvokeOptions(provider=provider)
    roles = listed_roles(cluster, members)
    arn = role_of(pulumi_aws.get_caller_identity(opts=asking).arn, roles)
    dry = pulumi.runtime.is_dry_run()
    if arn is None or (dry and arn not in cluster.admins):
        return
    if cluster.name in aws_eks.get_clusters(opts=asking).names:
        return
    issue = (
        f"{roles[arn]}: {arn} is the role of these credentials, which would create the cluster {cluster.name}; "
        "EKS makes that role an administrator and refuses a second access entry; "
        "remove it here, or run the first update as another role and add it afterwards"
    )
    if not dry:
        raise pulumi.RunError(issue)
    pulumi.log.warn(issue)
