"""A network for tests, and what they ask of it."""

from __future__ import annotations

from typing import Any, Final

import pulumi

from infra.sections.network import MadeNetworkConfig, VpcConfig
from infra.sites.aws.network import Network
from infra.sites.aws.provider import ProviderArgs
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud

SITE: Final = ProviderArgs(
    region=REGION, account=ACCOUNT, stack="test", cluster="training", tags={}
)
SETTINGS: Final = MadeNetworkConfig(
    cidr="10.20.0.0/16", zones=("us-east-1a", "us-east-1b"), nat="per-zone"
)


def network(opts: pulumi.ResourceOptions, **changes: Any) -> Network:
    """The network with changed settings."""
    return Network("network", SITE, SETTINGS.model_copy(update=changes), opts)


def way_out(cloud: Cloud, subnet: str) -> str:
    """The gateway of a subnet's default route."""
    (table,) = cloud.ec2.describe_route_tables(
        Filters=[{"Name": "association.subnet-id", "Values": [subnet]}]
    )["RouteTables"]
    (route,) = [r for r in table["Routes"] if r.get("DestinationCidrBlock") == "0.0.0.0/0"]
    gateway: str = route.get("NatGatewayId") or route["GatewayId"]
    return gateway


def zone_of_nat(cloud: Cloud, gateway: str) -> str:
    (nat,) = cloud.ec2.describe_nat_gateways(NatGatewayIds=[gateway])["NatGateways"]
    (subnet,) = cloud.subnets([nat["SubnetId"]])
    zone: str = subnet["AvailabilityZone"]
    return zone


def existing_vpc(cloud: Cloud) -> VpcConfig:
    """A VPC of two blocks with a private subnet in each, made without Pulumi."""
    vpc = cloud.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    cloud.ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock="100.64.0.0/16")
    subnets = {
        zone: cloud.ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]
        for zone, cidr in (("us-east-1a", "10.9.0.0/20"), ("us-east-1b", "100.64.0.0/20"))
    }
    return VpcConfig(
        vpc_id=vpc,
        cidr="10.9.0.0/16",
        secondary_cidrs=("100.64.0.0/16",),
        private_subnets={zone: subnet["SubnetId"] for zone, subnet in subnets.items()},
    )
