"""Placeholders `${NAME.output}` for outputs of rendered resources that only a cloud knows.

Only outputs that other resources' inputs contain. They show reviewers which resource refers to which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

EKS_COMPONENT: Final = "eks:index:Cluster"
EKS_CLUSTER: Final = "aws:eks/cluster:Cluster"
_AWS: Final = "aws:"

_OF_ALL: Final = ("arn", "name")
_MORE: Final[Mapping[str, tuple[str, ...]]] = {
    "aws:kms/key:Key": ("keyId",),
    "aws:ec2/launchTemplate:LaunchTemplate": ("latestVersion",),
    "aws:ec2/eip:Eip": ("allocationId",),
    "aws:eks/nodeGroup:NodeGroup": ("nodeGroupName",),
    "aws:fsx/lustreFileSystem:LustreFileSystem": ("dnsName", "mountName"),
    "aws:sqs/queue:Queue": ("url",),
}


def added(type_: str, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource's outputs in addition to its inputs; none for types other than AWS's."""
    if type_ == EKS_COMPONENT:
        return {"kubeconfigJson": placeholder(name, "kubeconfig")}
    if not type_.startswith(_AWS):
        return {}
    wanted = (*_OF_ALL, *_MORE.get(type_, ()))
    found: dict[str, Any] = {key: placeholder(name, key) for key in wanted if key not in inputs}
    if type_ == "aws:eks/nodeGroup:NodeGroup":
        group = {"name": placeholder(name, "autoscalingGroup")}
        found["resources"] = [{"autoscalingGroups": [group]}]
    return found


def eks_cluster(name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": inputs["name"],
        "arn": placeholder(name, "arn"),
        "createdAt": placeholder(name, "createdAt"),
        "endpoint": placeholder(name, "endpoint"),
        "certificateAuthority": {"data": placeholder(name, "certificateAuthority")},
        "vpcConfig": {"clusterSecurityGroupId": placeholder(name, "securityGroup")},
    }


def looked_up(token: str) -> dict[str, Any]:
    """Return the result of a look-up. Raises LookupError for an unknown one."""
    if token == "aws:index/getCallerIdentity:getCallerIdentity":
        return {"arn": placeholder("caller", "arn")}
    raise LookupError(f"the program calls {token}, which needs a cloud")


def placeholder(name: str, output: str) -> str:
    return f"${{{name}.{output}}}"
