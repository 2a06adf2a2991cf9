"""The role of every EC2 node, managed or Karpenter's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_aws.iam as iam

from infra.domain import naming
from infra.sites.aws.policy_documents import document

POLICIES: Final = ("AmazonEKSWorkerNodeMinimalPolicy", "AmazonEC2ContainerRegistryPullOnly")
"""Join the cluster, pull images. The network plug-in and each team have separate roles, because every pod that
reaches the metadata service has the node's permissions."""

AWS_POLICIES: Final = "arn:aws:iam::aws:policy"

TRUST: Final[dict[str, Any]] = document(
    {
        "Effect": "Allow",
        "Action": "sts:AssumeRole",
        "Principal": {"Service": "ec2.amazonaws.com"},
    }
)


@dataclass(frozen=True, kw_only=True)
class NodeRoleArgs:
    cluster: str


class NodeRole(pulumi.ComponentResource):
    arn: pulumi.Output[str]
    role_name: pulumi.Output[str]

    def __init__(self, name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsNodeRole"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role = iam.Role(
            f"{name}-role",
            description=f"Nodes of {args.cluster}",
            assume_role_policy=json.dumps(TRUST),
            opts=child,
        )
        attached = [
            iam.RolePolicyAttachment(
                f"{name}-{policy}",
                role=role.name,
                policy_arn=f"{AWS_POLICIES}/{policy}",
                opts=child,
            )
            for policy in POLICIES
        ]
        # Resources that start nodes wait for the policies, too.
        ready = pulumi.Output.all(*(one.id for one in attached))
        self.arn = pulumi.Output.all(role.arn, ready).apply(lambda both: str(both[0]))
        self.role_name = role.name
        self.register_outputs({"arn": self.arn, "name": role.name})
