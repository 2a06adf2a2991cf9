"""Clusters of other shapes: a public endpoint, and mistakes that would end in AWS, or worse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pulumi
import pytest
from botocore.exceptions import ClientError
from clusters import ADMIN, Base, base, cluster_args
from moto_cloud import Cloud, Deployed

from infra.aws.cluster import Cluster

Build = Callable[[Callable[[pulumi.ResourceOptions], Any]], Deployed]


def of(on: Base, opts: pulumi.ResourceOptions, **changed: Any) -> Cluster:
    return Cluster("cluster", replace(cluster_args(on), **changed), opts)


def test_a_public_endpoint_is_open_to_the_listed_cidrs_and_the_private_one_stays(
    build: Build, cloud: Cloud
) -> None:
    build(lambda opts: of(base(opts), opts, public_cidrs=("203.0.113.0/24",)))
    access = cloud.cluster("training")["resourcesVpcConfig"]
    assert access["endpointPublicAccess"] is True
    assert access["publicAccessCidrs"] == ["203.0.113.0/24"]
    assert access["endpointPrivateAccess"] is True


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "0.0.0.0/0 "])
def test_an_endpoint_for_everybody_is_refused(build: Build, cidr: str) -> None:
    with pytest.raises(ValueError, match=r"0\.0\.0\.0/0"):
        build(lambda opts: of(base(opts), opts, public_cidrs=("203.0.113.0/24", cidr)))


def test_a_principal_that_is_admin_and_deployer_is_refused(build: Build) -> None:
    with pytest.raises(ValueError, match="role/platform-admin is admin and deployer"):
        build(lambda opts: of(base(opts), opts, deployers=(ADMIN,)))


def test_a_subnet_that_is_not_there_is_refused(build: Build) -> None:
    def program(opts: pulumi.ResourceOptions) -> None:
        on = base(opts)
        network = replace(on.network, private_subnets={"us-east-1a": "subnet-0abc"})
        of(on, opts, network=network)

    with pytest.raises(ClientError, match="subnet-0abc"):
        build(program)


def test_subnets_of_one_zone_are_refused(build: Build) -> None:
    def program(opts: pulumi.ResourceOptions) -> None:
        on = base(opts)
        one = {"us-east-1a": on.network.private_subnets["us-east-1a"]}
        of(on, opts, network=replace(on.network, private_subnets=one))

    with pytest.raises(ValueError, match="two zones"):
        build(program)


def test_a_key_that_is_not_there_is_refused(build: Build) -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/none"
    with pytest.raises(ClientError, match="key/none"):
        build(lambda opts: of(base(opts), opts, key_arn=key))


def test_a_cluster_that_may_go_is_not_protected(build: Build) -> None:
    deployed = build(lambda opts: of(base(opts), opts, protect=False))
    cluster = deployed.one("eks:index:Cluster")
    assert cluster.inputs["deletionProtection"] is False
    assert not cluster.protect
