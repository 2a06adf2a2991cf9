"""Networks of other shapes: one NAT gateway, a VPC that its owner brings, mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from botocore.exceptions import ClientError

from infra.sections.network import VpcConfig
from infra.sites.aws.network import existing_network
from infra.sites.aws.outputs import NetworkRecord
from tests.aws.moto_cloud import Cloud, Deployed
from tests.aws.networks import existing_vpc, network, way_out, zone_of_nat

Build = Callable[[Callable[[pulumi.ResourceOptions], Any]], Deployed]


def record(deployed: Deployed) -> dict[str, Any]:
    found: dict[str, Any] = deployed.result["record"]
    return found


def existing(settings: VpcConfig, opts: pulumi.ResourceOptions) -> NetworkRecord:
    return existing_network("network", "training", settings, opts)[0]


def test_single_nat_routes_all_private_subnets_through_the_first_zone(
    build: Build, cloud: Cloud
) -> None:
    deployed = build(lambda opts: network(opts, nat="single"))
    gateways = {way_out(cloud, s) for s in record(deployed)["private_subnets"].values()}
    assert [zone_of_nat(cloud, nat) for nat in gateways] == ["us-east-1a"]
    assert len(deployed.all("aws:ec2/eip:Eip")) == 1


def test_zone_of_another_region_is_rejected(build: Build) -> None:
    with pytest.raises(LookupError, match="eu-west-1a is none of us-east-1's zones"):
        build(lambda opts: network(opts, zones=("us-east-1a", "eu-west-1a")))


def test_existing_vpc_gets_only_the_efa_security_group_and_exports_the_same_record(
    build: Build, cloud: Cloud
) -> None:
    settings = existing_vpc(cloud)
    deployed = build(lambda opts: {"record": existing(settings, opts)})
    assert record(deployed) == {
        "vpc_id": settings.vpc_id,
        "cidrs": ["10.9.0.0/16", "100.64.0.0/16"],
        "private_subnets": dict(settings.private_subnets),
        "public_subnets": {},
        "efa_security_group": deployed.one("aws:ec2/securityGroup:SecurityGroup").id,
    }
    assert {
        one.type.rpartition(":")[2] for one in deployed.created if one.type.startswith("aws:")
    } == {
        "SecurityGroup",
        "SecurityGroupIngressRule",
        "SecurityGroupEgressRule",
    }


def test_unknown_vpc_is_rejected(build: Build, cloud: Cloud) -> None:
    unknown = existing_vpc(cloud).model_copy(update={"vpc_id": "vpc-0abc"})
    with pytest.raises(ClientError, match="vpc-0abc"):
        build(lambda opts: existing(unknown, opts))
