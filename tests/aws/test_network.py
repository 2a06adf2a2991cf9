"""The VPC, as the cloud has it once the program ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.sites.aws.network import Network
from tests.aws.moto_cloud import Cloud, Deployed, deployed_once
from tests.aws.moto_cloud.deploying import DEFAULT_TAGS
from tests.aws.networks import ARGS, way_out, zone_of_nat


@pytest.fixture(scope="module")
def network() -> Iterator[Deployed]:
    yield from deployed_once(lambda opts: Network("network", ARGS, opts))


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


def test_nat_gateways_are_in_public_subnets(network: Deployed, cloud: Cloud) -> None:
    public = set(record(network)["public_subnets"].values())
    nats = cloud.ec2.describe_nat_gateways()["NatGateways"]
    assert {nat["SubnetId"] for nat in nats} == public
    assert all(way_out(cloud, subnet).startswith("igw-") for subnet in public)


def test_each_zone_has_one_subnet_of_each_kind_without_overlap(
    network: Deployed, cloud: Cloud
) -> None:
    for kind, cidrs in (
        ("private_subnets", ["10.20.0.0/19", "10.20.32.0/19"]),
        ("public_subnets", ["10.20.192.0/24", "10.20.193.0/24"]),
    ):
        for (zone, subnet), cidr in zip(record(network)[kind].items(), cidrs, strict=True):
            (found,) = cloud.subnets([subnet])
            assert (found["AvailabilityZone"], found["CidrBlock"]) == (zone, cidr)
            assert not found["MapPublicIpOnLaunch"]


def test_load_balancers_and_karpenter_find_their_subnets_by_tags(
    network: Deployed, cloud: Cloud
) -> None:
    def tagged(key: str, value: str) -> set[str]:
        filters = [{"Name": f"tag:{key}", "Values": [value]}]
        return {s["SubnetId"] for s in cloud.ec2.describe_subnets(Filters=filters)["Subnets"]}

    private = set(record(network)["private_subnets"].values())
    assert tagged("kubernetes.io/role/internal-elb", "1") == private
    assert tagged("karpenter.sh/discovery", "training") == private
    assert tagged("kubernetes.io/role/elb", "1") == set(record(network)["public_subnets"].values())


def test_default_security_group_denies_all_traffic(network: Deployed, cloud: Cloud) -> None:
    (group,) = cloud.ec2.describe_security_groups(
        Filters=[
            {"Name": "vpc-id", "Values": [record(network)["vpc_id"]]},
            {"Name": "group-name", "Values": ["default"]},
        ]
    )["SecurityGroups"]
    assert (group["IpPermissions"], group["IpPermissionsEgress"]) == ([], [])


def test_efa_security_group_allows_all_protocols_between_its_members_only(
    network: Deployed, cloud: Cloud
) -> None:
    (group,) = cloud.security_groups([record(network)["efa_security_group"]])
    for direction in ("IpPermissions", "IpPermissionsEgress"):
        (rule,) = group[direction]
        assert rule["IpProtocol"] == "-1"
        assert [pair["GroupId"] for pair in rule["UserIdGroupPairs"]] == [group["GroupId"]]
        assert rule.get("IpRanges", []) == []


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


def test_interface_endpoints_have_private_dns_and_allow_https_from_the_vpc_only(
    network: Deployed, cloud: Cloud
) -> None:
    endpoints = cloud.ec2.describe_vpc_endpoints(
        Filters=[{"Name": "vpc-endpoint-type", "Values": ["Interface"]}]
    )["VpcEndpoints"]
    services = {e["ServiceName"].removeprefix("com.amazonaws.us-east-1.") for e in endpoints}
    assert services == {"ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "logs", "sqs", "sts"}
    private = set(record(network)["private_subnets"].values())
    assert all(set(e["SubnetIds"]) == private and e["PrivateDnsEnabled"] for e in endpoints)
    (group_id,) = {g["GroupId"] for e in endpoints for g in e["Groups"]}
    (group,) = cloud.security_groups([group_id])
    (rule,) = group["IpPermissions"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 443, 443)
    assert [r["CidrIp"] for r in rule["IpRanges"]] == ["10.20.0.0/16"]
    assert group["IpPermissionsEgress"] == []


def test_all_flows_are_logged_with_the_configured_retention(
    network: Deployed, cloud: Cloud
) -> None:
    (flow,) = cloud.ec2.describe_flow_logs()["FlowLogs"]
    assert (flow["ResourceId"], flow["TrafficType"]) == (record(network)["vpc_id"], "ALL")
    (group,) = cloud.client("logs").describe_log_groups()["logGroups"]
    assert (group["logGroupName"], group["retentionInDays"]) == ("/aws/vpc/training/flows", 30)


def test_flow_log_role_is_for_this_account_only(network: Deployed, cloud: Cloud) -> None:
    (role,) = cloud.iam.list_roles()["Roles"]
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": "123456789012"}}


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
