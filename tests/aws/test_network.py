"""The VPC, as the cloud has it once the program ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.aws.moto_cloud import Cloud, Deployed, deployed_once
from tests.aws.moto_cloud.deploying import DEFAULT_TAGS
from tests.aws.networks import network as made_network
from tests.aws.networks import way_out, zone_of_nat


@pytest.fixture(scope="module")
def network() -> Iterator[Deployed]:
    yield from deployed_once(made_network)


@pytest.fixture
def cloud(network: Deployed) -> Cloud:
    return network.cloud


def record(deployed: Deployed) -> dict[str, Any]:
    found: dict[str, Any] = deployed.result["record"]
    return found


def test_nat_per_zone_routes_each_private_subnet_within_its_zone(
    network: Deployed, cloud: Cloud
) -> None:
    gateways = {z: way_out(cloud, s) for z, s in record(network)["private_subnets"].items()}
    assert {zone: zone_of_nat(cloud, nat) for zone, nat in gateways.items()} == {
        "us-east-1a": "us-east-1a",
        "us-east-1b": "us-east-1b",
    }


def test_every_private_subnet_routes_to_the_s3_gateway_endpoint(
    network: Deployed, cloud: Cloud
) -> None:
    (gateway,) = cloud.ec2.describe_vpc_endpoints(
        Filters=[{"Name": "vpc-endpoint-type", "Values": ["Gateway"]}]
    )["VpcEndpoints"]
    assert gateway["ServiceName"] == "com.amazonaws.us-east-1.s3"
    private = list(record(network)["private_subnets"].values())
    tables = cloud.ec2.describe_route_tables(
        Filters=[{"Name": "association.subnet-id", "Values": private}]
    )["RouteTables"]
    assert {table["RouteTableId"] for table in tables} == set(gateway["RouteTableIds"])


def test_flow_log_role_writes_to_its_log_group_only(network: Deployed, cloud: Cloud) -> None:
    (role,) = cloud.iam.list_roles()["Roles"]
    (name,) = cloud.iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]
    policy = cloud.iam.get_role_policy(RoleName=role["RoleName"], PolicyName=name)["PolicyDocument"]
    policy = json.loads(policy) if isinstance(policy, str) else policy
    writing = [s for s in policy["Statement"] if "logs:PutLogEvents" in s["Action"]]
    assert [resource.removesuffix(":*") for s in writing for resource in s["Resource"]] == [
        "arn:aws:logs:us-east-1:123456789012:log-group:/aws/vpc/training/flows"
    ] * 2


UNTAGGABLE = {"aws:ec2/route:Route", "aws:ec2/routeTableAssociation:RouteTableAssociation"}


def test_every_resource_has_the_stack_tags(network: Deployed, cloud: Cloud) -> None:
    taggable = {
        one.id: one.name
        for one in network.created
        if one.type.startswith(("aws:ec2/", "aws:vpc/")) and one.type not in UNTAGGABLE
    }
    tags = cloud.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": list(taggable)}])
    marked = {t["ResourceId"] for t in tags["Tags"] if {t["Key"]: t["Value"]} == DEFAULT_TAGS}
    assert [name for id_, name in taggable.items() if id_ not in marked] == []
