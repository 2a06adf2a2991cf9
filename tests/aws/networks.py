"""A network for tests, and what they ask of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from infra.sections.network import MadeNetworkConfig, VpcConfig
from infra.sites.aws.existing_network import ExistingNetworkArgs
from infra.sites.aws.network import NetworkArgs
from tests.aws.moto_cloud import ACCOUNT, Cloud

ARGS: Final = NetworkArgs(
    cluster="training",
    account=ACCOUNT,
    region="us-east-1",
    settings=MadeNetworkConfig(
        cidr="10.20.0.0/16", zones=("us-east-1a", "us-east-1b"), nat="per-zone"
    ),
)


def network_args(**changes: Any) -> NetworkArgs:
    """Return the arguments with changed settings."""
    return replace(ARGS, settings=ARGS.settings.model_copy(update=changes))


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


def existing_vpc(cloud: Cloud) -> ExistingNetworkArgs:
    """A VPC of two blocks with a private subnet in each, made without Pulumi."""
    vpc = cloud.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    cloud.ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock="100.64.0.0/16")
    subnets = {
        zone: cloud.ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]
        for zone, cidr in (("us-east-1a", "10.9.0.0/20"), ("us-east-1b", "100.64.0.0/20"))
    }
    return ExistingNetworkArgs(
        cluster="training",
        settings=VpcConfig(
            vpc_id=vpc,
            cidr="10.9.0.0/16",
            secondary_cidrs=("100.64.0.0/16",),
            private_subnets={zone: subnet["SubnetId"] for zone, subnet in subnets.items()},
        ),
    )
