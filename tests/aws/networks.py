"""A network for tests, and what they ask of it."""

from __future__ import annotations

from typing import Final

from moto_cloud import Cloud

from infra.aws.network import Nat, NetworkArgs

ARGS: Final = NetworkArgs(
    cluster="training",
    region="us-east-1",
    cidr="10.20.0.0/16",
    zones=("us-east-1a", "us-east-1b"),
    nat=Nat.PER_ZONE,
    flow_log_days=30,
)


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
