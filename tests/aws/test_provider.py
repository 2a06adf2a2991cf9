"""The AWS provider: no other account, and the stack's tags on everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws.ec2 as ec2
import pytest

from infra.sites.aws.provider import ProviderArgs, aws_provider
from tests.aws.moto_cloud import Deployed

ARGS = ProviderArgs(
    region="us-east-1",
    account="123456789012",
    stack="dev",
    cluster="training",
    tags={"cost-center": "research", "trainyard.dev/stack": "prod"},
)


@pytest.fixture
def deployed(build: Callable[[Callable[[pulumi.ResourceOptions], Any]], Deployed]) -> Deployed:
    def program(_: pulumi.ResourceOptions) -> None:
        on = aws_provider("own", ARGS)
        ec2.Vpc("v", cidr_block="10.0.0.0/16", opts=pulumi.ResourceOptions(provider=on))

    return build(program)


def provider(deployed: Deployed) -> Any:
    return deployed.one("pulumi:providers:aws", "own").inputs


def test_resources_have_stack_tags_and_user_tags_that_cannot_override_them(
    deployed: Deployed,
) -> None:
    (vpc,) = deployed.cloud.ec2.describe_vpcs(VpcIds=[deployed.one("aws:ec2/vpc:Vpc").id])["Vpcs"]
    assert {tag["Key"]: tag["Value"] for tag in vpc["Tags"]} == {
        "cost-center": "research",
        "trainyard.dev/stack": "dev",
        "trainyard.dev/cluster": "training",
        "app.kubernetes.io/part-of": "trainyard",
        "app.kubernetes.io/managed-by": "pulumi",
    }
