"""The security group of nodes with EFA."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws.ec2 as ec2
import pulumi_aws.vpc as vpc_rules

from infra.domain import naming


@dataclass(frozen=True, kw_only=True)
class EfaSecurityGroupArgs:
    """Where the group is."""

    cluster: str
    vpc_id: pulumi.Input[str]


class EfaSecurityGroup(pulumi.ComponentResource):
    """All traffic between members, in and out.

    EFA's packets bypass IP, so no CIDR matches them: both directions must name the group itself. The way
    to everything else is the cluster's own group, which such nodes have, too.
    """

    group_id: pulumi.Output[str]

    def __init__(self, name: str, args: EfaSecurityGroupArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsEfaSecurityGroup"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        group = ec2.SecurityGroup(
            f"{name}-group",
            description="EFA between nodes",
            vpc_id=args.vpc_id,
            tags={"Name": f"{args.cluster}-efa"},
            opts=child,
        )
        vpc_rules.SecurityGroupIngressRule(
            f"{name}-in",
            security_group_id=group.id,
            referenced_security_group_id=group.id,
            ip_protocol="-1",
            opts=child,
        )
        vpc_rules.SecurityGroupEgressRule(
            f"{name}-out",
            security_group_id=group.id,
            referenced_security_group_id=group.id,
            ip_protocol="-1",
            opts=child,
        )
        self.group_id = group.id
        self.register_outputs({"groupId": group.id})
