"""Clusters of other shapes, in a VPC that was there before; and mistakes that AWS would find late."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pulumi
import pytest
from botocore.exceptions import ClientError

from tests.aws.clusters import ADMIN, existing_base, private_cluster
from tests.aws.moto_cloud import ACCOUNT, Cloud, Deployed

Make = Callable[..., Deployed]
Keep = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@pytest.fixture
def make(
    build: Callable[[Callable[[pulumi.ResourceOptions], Any]], Deployed], cloud: Cloud
) -> Make:
    """Deploys the usual cluster with some settings changed, in those subnets that `keep` keeps."""

    def made(
        keep: Keep = dict, others: Mapping[str, Any] | None = None, **changed: Any
    ) -> Deployed:
        def program(opts: pulumi.ResourceOptions) -> None:
            on = existing_base(opts, cloud)
            subnets = keep(on.network.private_subnets)
            on = replace(on, network=replace(on.network, private_subnets=subnets))
            private_cluster(on, opts, changed, **others or {})

        return build(program)

    return made


def test_public_endpoint_is_open_to_listed_cidrs_and_the_private_one_remains(
    make: Make, cloud: Cloud
) -> None:
    make(endpoint=("203.0.113.0/24",))
    access = cloud.cluster("training")["resourcesVpcConfig"]
    assert access["endpointPublicAccess"] is True
    assert access["publicAccessCidrs"] == ["203.0.113.0/24"]
    assert access["endpointPrivateAccess"] is True


def test_every_block_of_the_vpc_reaches_the_private_endpoint(make: Make, cloud: Cloud) -> None:
    deployed = make()
    rules = deployed.all("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
    assert {rule.inputs["cidrIpv4"] for rule in rules if "cidrIpv4" in rule.inputs} == {
        "10.9.0.0/16",
        "100.64.0.0/16",
    }


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "0.0.0.0/0 "])
def test_public_endpoint_for_all_addresses_is_rejected(make: Make, cidr: str) -> None:
    with pytest.raises(ValueError, match=r"0\.0\.0\.0/0"):
        make(endpoint=("203.0.113.0/24", cidr))


def test_principal_that_is_admin_and_deployer_is_rejected(make: Make) -> None:
    with pytest.raises(
        ValueError, match="role/platform-admin is listed in two of admins, deployers"
    ):
        make(deployers=(ADMIN,))


def test_access_entry_for_the_cluster_creator_is_rejected(make: Make) -> None:
    with pytest.raises(ValueError, match="user/moto made the cluster"):
        make(admins=(f"arn:aws:iam::{ACCOUNT}:user/moto",))


def test_unknown_subnet_is_rejected(make: Make) -> None:
    with pytest.raises(ClientError, match="subnet-0abc"):
        make(keep=lambda _: {"us-east-1a": "subnet-0abc"})


def test_subnets_in_a_single_zone_are_rejected(make: Make) -> None:
    with pytest.raises(ValueError, match="two zones"):
        make(keep=lambda subnets: {"us-east-1a": subnets["us-east-1a"]})


def test_unknown_key_is_rejected(make: Make) -> None:
    with pytest.raises(ClientError, match="key/none"):
        make(others={"key_arn": "arn:aws:kms:us-east-1:123456789012:key/none"})


def test_cluster_without_protection_may_be_deleted(make: Make) -> None:
    cluster = make(others={"protect": False}).one("eks:index:Cluster")
    assert cluster.inputs["deletionProtection"] is False
    assert not cluster.protect
