"""A whole stack whose file differs from the committed one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.aws.moto_cloud import Cloud, Deployed
from tests.aws.programs import whole


def test_existing_vpc_is_used_and_none_is_created(
    cloud: Cloud, build: Callable[[Any], Deployed]
) -> None:
    vpc = cloud.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = {
        zone: cloud.ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]
        for zone, cidr in (("us-east-1a", "10.9.0.0/18"), ("us-east-1b", "10.9.64.0/18"))
    }
    ids = {zone: subnet["SubnetId"] for zone, subnet in subnets.items()}
    network = {"existing": {"vpcId": vpc, "cidr": "10.9.0.0/16", "privateSubnets": ids}}
    stack = build(whole("dev", network=network))
    assert not stack.all("aws:ec2/vpc:Vpc")
    assert not stack.all("aws:ec2/natGateway:NatGateway")
    assert stack.one("eks:index:Cluster").inputs["vpcId"] == vpc
    groups = stack.all("aws:eks/nodeGroup:NodeGroup")
    assert {one for group in groups for one in group.inputs["subnetIds"]} == set(ids.values())
