"""An existing VPC: used, never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra.domain import naming
from infra.sites.aws.efa import EfaSecurityGroup, EfaSecurityGroupArgs
from infra.sites.aws.outputs import NetworkRecord


@dataclass(frozen=True, kw_only=True)
class ExistingNetworkArgs:
    """An existing VPC with its own NAT or other egress."""

    cluster: str
    vpc_id: str
    cidrs: tuple[str, ...]
    """All CIDR blocks of the VPC, the primary one first."""
    private_subnets: Mapping[str, str]
    """Subnet ids by availability zone, at least two zones."""


class ExistingNetwork(pulumi.ComponentResource):
    """The same record as `Network`; creates EFA's security group only."""

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
            cidrs=args.cidrs,
            private_subnets=args.private_subnets,
            public_subnets={},
            efa_security_group=efa.group_id,
        )
        self.register_outputs({"vpcId": args.vpc_id})
