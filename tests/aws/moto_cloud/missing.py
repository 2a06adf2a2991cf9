"""What moto 5.2.5 lacks. Such a resource is echoed, and what it refers to must exist in moto."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.aws.moto_cloud.cloud import ACCOUNT, REGION, Cloud
from tests.aws.moto_cloud.efs import check_backup_policy
from tests.aws.moto_cloud.fsx import check_association
from tests.aws.moto_cloud.registry import Inputs, Outputs

Check = Callable[[Inputs, Cloud], None]


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Why a resource is only echoed, what of it is checked, and its ARN's pattern if it has one."""

    why: str
    check: Check
    arn: str | None = None
    """`{name}` is the resource's name in Pulumi."""


def _cluster(inputs: Inputs, cloud: Cloud) -> None:
    cloud.cluster(inputs["clusterName"])


def _addon(inputs: Inputs, cloud: Cloud) -> None:
    cloud.cluster(inputs["clusterName"])
    for association in inputs.get("podIdentityAssociations", []):
        cloud.role(association["roleArn"], trusting="pods.eks.amazonaws.com")


def _pod_identity(inputs: Inputs, cloud: Cloud) -> None:
    cloud.cluster(inputs["clusterName"])
    cloud.role(inputs["roleArn"], trusting="pods.eks.amazonaws.com")


def _access_entry(inputs: Inputs, cloud: Cloud) -> None:
    cloud.cluster(inputs["clusterName"])
    creator = cloud.client("sts").get_caller_identity()["Arn"].replace(":sts:", ":iam:")
    if inputs["principalArn"] == creator:
        raise ValueError(f"ResourceInUseException: {creator} made the cluster, so it has an entry")
    if inputs.get("type") == "EC2_LINUX":
        if set(inputs) & {"kubernetesGroups", "userName"}:
            raise ValueError("an EC2_LINUX access entry takes neither groups nor a user name")
        cloud.role(inputs["principalArn"], trusting="ec2.amazonaws.com")
    for group in inputs.get("kubernetesGroups", []):
        if group.startswith(("system:", "eks:", "aws:", "amazon:", "iam:")):
            raise ValueError(f"EKS refuses the group {group} in an access entry")


def _access_policy(inputs: Inputs, cloud: Cloud) -> None:
    cloud.cluster(inputs["clusterName"])
    if not inputs["policyArn"].startswith("arn:aws:eks::aws:cluster-access-policy/"):
        raise ValueError(f"{inputs['policyArn']} is no access policy of EKS")


def _placement_group(inputs: Inputs, cloud: Cloud) -> None:
    if inputs["strategy"] not in ("cluster", "partition", "spread"):
        raise ValueError(f"EC2 has no placement strategy {inputs['strategy']}")


def _autoscaling_tag(inputs: Inputs, cloud: Cloud) -> None:
    behind = {
        group["name"]
        for one in inputs["__monitor"].created.values()
        if one.type == "aws:eks/nodeGroup:NodeGroup"
        for group in one.outputs["resources"][0]["autoscalingGroups"]
    }
    if inputs["autoscalingGroupName"] not in behind:
        raise LookupError(
            f"Auto Scaling group {inputs['autoscalingGroupName']} is behind no node group"
        )


def _log_group(inputs: Inputs, cloud: Cloud) -> None:
    cloud.log_group(f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{inputs['logGroupName']}")


def _quota(inputs: Inputs, cloud: Cloud) -> None:
    if inputs["serviceCode"] != "ec2":
        raise LookupError(f"no quotas of {inputs['serviceCode']}")


_EKS: Final = f"arn:aws:eks:{REGION}:{ACCOUNT}"

MISSING: Final[Mapping[str, Missing]] = {
    "aws:eks/addon:Addon": Missing(
        why="moto's EKS has no add-ons", check=_addon, arn=f"{_EKS}:addon/{{name}}"
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Missing(
        why="moto's EKS has no Pod Identity", check=_pod_identity, arn=f"{_EKS}:pia/{{name}}"
    ),
    "aws:eks/accessEntry:AccessEntry": Missing(
        why="moto's EKS has no access entries",
        check=_access_entry,
        arn=f"{_EKS}:access-entry/{{name}}",
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Missing(
        why="moto's EKS has no access entries", check=_access_policy
    ),
    "aws:ec2/placementGroup:PlacementGroup": Missing(
        why="moto's EC2 has no placement groups",
        check=_placement_group,
        arn=f"arn:aws:ec2:{REGION}:{ACCOUNT}:placement-group/{{name}}",
    ),
    "aws:autoscaling/tag:Tag": Missing(
        why="moto's EKS names the Auto Scaling group of a node group, but makes none",
        check=_autoscaling_tag,
    ),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": Missing(
        why="moto's FSx has no data repository associations", check=check_association
    ),
    "aws:cloudwatch/logDataProtectionPolicy:LogDataProtectionPolicy": Missing(
        why="moto's CloudWatch Logs has no data protection policies", check=_log_group
    ),
    "aws:servicequotas/serviceQuota:ServiceQuota": Missing(
        why="moto's Service Quotas knows few quotas and requests none", check=_quota
    ),
    "aws:efs/backupPolicy:BackupPolicy": Missing(
        why="moto's EFS describes backup policies, but sets none", check=check_backup_policy
    ),
}
"""By type token."""


def echo(token: str, name: str, inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    """The id and what a provider would add, once what the resource refers to was found."""
    entry = MISSING[token]
    entry.check(inputs, cloud)
    return f"{name}-id", {"arn": entry.arn.format(name=name)} if entry.arn else {}
