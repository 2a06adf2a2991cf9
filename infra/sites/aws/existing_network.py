"""A VPC that its owner brings: only used, never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra.domain import naming
from infra.sites.aws.efa import EfaSecurityGroup, EfaSecurityGroupArgs
from infra.sites.aws.outputs import NetworkRecord


@dataclass(frozen=True, kw_only=True)
class ExistingNetworkArgs:
    """A VPC that somebody else made, with its own ways out."""

    cluster: str
    vpc_id: str
    cidr: str
    private_subnets: Mapping[str, str]
    """Subnet ids by availability zone; in two zones at least."""


class ExistingNetwork(pulumi.ComponentResource):
    """The record that `Network` gives, too; all that is made is EFA's security group."""

    record: NetworkRecord

    def __init__(self, name: str, args: ExistingNetworkArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsExistingNetwork"), name, None, opts)
        efa = EfaSecurityGroup(
            f"{name}-efa",
            EfaSecurityGroupArgs(cluster=args.cluster, vpc_id=args.vpc_id),
            pulumi.ResourceOptions(parent=self),
        )
        self.record = NetworkRecord(
            vpc_id=args.vpc_id,
            cidr=args.cidr,
            private_subnets=args.private_subnets,
            public_subnets={},
            efa_security_group=efa.group_id,
        )
        self.register_outputs({"vpcId": args.vpc_id})
