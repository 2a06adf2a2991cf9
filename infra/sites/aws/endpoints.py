"""VPC endpoints of AWS services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws.ec2 as ec2
import pulumi_aws.vpc as vpc_rules

from infra.domain import naming

GATEWAYS: Final = ("s3",)
"""Gateway endpoints, free of charge: checkpoints, datasets and image layers are in S3."""

ENDPOINTS: Final = (
    "ec2",
    "ecr.api",
    "ecr.dkr",
    "eks",
    "eks-auth",
    "logs",
    "sqs",
    "sts",
)
"""Interface endpoints: services that nodes, add-ons and Karpenter call constantly."""

HTTPS: Final = 443


@dataclass(frozen=True, kw_only=True)
class EndpointsArgs:
    cluster: str
    region: str
    vpc_id: pulumi.Input[str]
    cidr: str
    """CIDR that may use the interface endpoints."""
    subnets: tuple[pulumi.Input[str], ...]
    """One subnet per zone."""
    route_tables: tuple[pulumi.Input[str], ...]
    """Route tables for the gateway endpoints."""
    services: tuple[str, ...]


class Endpoints(pulumi.ComponentResource):
    def __init__(self, name: str, args: EndpointsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsEndpoints"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        for service in GATEWAYS:
            ec2.VpcEndpoint(
                f"{name}-{service}",
                vpc_id=args.vpc_id,
                service_name=service_name(args.region, service),
                vpc_endpoint_type="Gateway",
                route_table_ids=list(args.route_tables),
                tags={"Name": f"{args.cluster}-{service}"},
                opts=child,
            )
        group = self._group(name, args)
        for service in args.services:
            ec2.VpcEndpoint(
                f"{name}-{service}",
                vpc_id=args.vpc_id,
                service_name=service_name(args.region, service),
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(args.subnets),
                security_group_ids=[group.id],
                tags={"Name": f"{args.cluster}-{service}"},
                opts=child,
            )
        self.register_outputs({"services": [*GATEWAYS, *args.services]})

    def _group(self, name: str, args: EndpointsArgs) -> ec2.SecurityGroup:
        """Return the security group of the interfaces: HTTPS from the VPC."""
        child = pulumi.ResourceOptions(parent=self)
        group = ec2.SecurityGroup(
            f"{name}-group",
            description="HTTPS from the VPC to AWS services",
            vpc_id=args.vpc_id,
            tags={"Name": f"{args.cluster}-endpoints"},
            opts=child,
        )
        vpc_rules.SecurityGroupIngressRule(
            f"{name}-https",
            security_group_id=group.id,
            cidr_ipv4=args.cidr,
            ip_protocol="tcp",
            from_port=HTTPS,
            to_port=HTTPS,
            opts=child,
        )
        return group


def service_name(region: str, service: str) -> str:
    return f"com.amazonaws.{region}.{service}"
