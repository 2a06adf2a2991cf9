"""An existing VPC: used, never changed."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from infra.domain import naming
from infra.sections.network import VpcConfig
from infra.sites.aws.efa import EfaSecurityGroup, EfaSecurityGroupArgs
from infra.sites.aws.outputs import NetworkRecord


@dataclass(frozen=True, kw_only=True)
class ExistingNetworkArgs:
    cluster: str
    settings: VpcConfig


class ExistingNetwork(pulumi.ComponentResource):
    """The same record as `Network`; creates EFA's security group only."""

    record: NetworkRecord

    def __init__(self, name: str, args: ExistingNetworkArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsExistingNetwork"), name, None, opts)
        efa = EfaSecurityGroup(
            f"{name}-efa",
            EfaSecurityGroupArgs(cluster=args.cluster, vpc_id=args.settings.vpc_id),
            pulumi.ResourceOptions(parent=self),
        )
        self.record = NetworkRecord(
            vpc_id=args.settings.vpc_id,
            cidrs=(args.settings.cidr, *args.settings.secondary_cidrs),
            private_subnets=args.settings.private_subnets,
            public_subnets={},
            efa_security_group=efa.group_id,
        )
        self.register_outputs({"vpcId": args.settings.vpc_id})
