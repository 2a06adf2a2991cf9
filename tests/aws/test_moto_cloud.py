"""The mocked cloud of the tests: what would fail in AWS fails here, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws.cloudwatch as cloudwatch
import pulumi_aws.ec2 as ec2
import pulumi_aws.eks as eks
import pulumi_aws.iam as iam
import pulumi_aws.sns as sns
import pytest
from botocore.exceptions import ClientError

from tests.aws.moto_cloud import Cloud, Deployed, account, missing
from tests.aws.moto_cloud.registry import CREATORS

Build = Callable[[Callable[[pulumi.ResourceOptions], Any]], Deployed]


TRUST = (
    '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", '
    '"Principal": {"Service": "ec2.amazonaws.com"}}]}'
)


def child(opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(
        parent=pulumi.ComponentResource("trainyard:test:T", "t", None, opts)
    )


def test_resource_is_created_in_moto(build: Build, cloud: Cloud) -> None:
    deployed = build(lambda opts: ec2.Vpc("v", cidr_block="10.0.0.0/16", opts=child(opts)).id)
    (vpc,) = cloud.ec2.describe_vpcs(VpcIds=[deployed.result])["Vpcs"]
    assert vpc["CidrBlock"] == "10.0.0.0/16"
    assert {"Key": "trainyard.dev/stack", "Value": "test"} in vpc["Tags"]


def test_an_account_starts_empty(cloud: Cloud) -> None:
    assert [v["CidrBlock"] for v in cloud.ec2.describe_vpcs()["Vpcs"]] == ["172.31.0.0/16"]


def test_unknown_id_fails(build: Build) -> None:
    def program(opts: pulumi.ResourceOptions) -> None:
        ec2.Subnet(
            "s",
            vpc_id="vpc-0",
            cidr_block="10.0.0.0/24",
            availability_zone="us-east-1a",
            opts=child(opts),
        )

    with pytest.raises(ClientError, match="InvalidVpcID"):
        build(program)


def test_unsupported_type_fails_and_names_where_to_add_it(build: Build) -> None:
    with pytest.raises(NotImplementedError, match=r"aws:sns/topic:Topic \(t\) is new .*missing.py"):
        build(lambda opts: sns.Topic("t", opts=child(opts)))


def test_resource_without_the_explicit_provider_fails(build: Build) -> None:
    with pytest.raises(LookupError, match="has no explicit AWS provider"):
        build(lambda opts: ec2.Vpc("v", cidr_block="10.0.0.0/16"))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ('{"Version": "2012-10-17", "Statement": [{"Effect": "Allow"', "Expecting"),
        ('{"Version": "2008-10-17", "Statement": []}', "policy version"),
        (
            '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "GetObject", '
            '"Resource": "*"}]}',
            "names no service",
        ),
        (
            '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", '
            '"Resource": "bucket/*"}]}',
            "is no ARN",
        ),
    ],
)
def test_a_bad_policy_fails(build: Build, policy: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(lambda opts: iam.Policy("p", policy=policy, opts=child(opts)))


def test_unknown_managed_policy_fails(build: Build) -> None:

    def program(opts: pulumi.ResourceOptions) -> None:
        role = iam.Role("r", assume_role_policy=TRUST, opts=child(opts))
        iam.RolePolicyAttachment(
            "a",
            role=role.name,
            policy_arn="arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolcy",
            opts=pulumi.ResourceOptions(parent=role),
        )

    with pytest.raises(LookupError, match="no managed policy AmazonEKSWorkerNodePolcy"):
        build(program)


def test_program_exception_reaches_the_test(build: Build) -> None:
    def program(opts: pulumi.ResourceOptions) -> None:
        vpc = ec2.Vpc("v", cidr_block="10.0.0.0/16", opts=child(opts))
        known: dict[str, str] = {}
        vpc.id.apply(lambda _: known["no such key"])

    with pytest.raises(KeyError, match="no such key"):
        build(program)


def test_role_that_the_service_may_not_assume_fails(build: Build) -> None:
    def program(opts: pulumi.ResourceOptions) -> None:
        role = iam.Role("r", assume_role_policy=TRUST, opts=child(opts))
        inside = pulumi.ResourceOptions(parent=role)
        vpc = ec2.Vpc("v", cidr_block="10.0.0.0/16", opts=inside)
        logs = cloudwatch.LogGroup("l", retention_in_days=30, opts=inside)
        ec2.FlowLog(
            "f",
            vpc_id=vpc.id,
            traffic_type="ALL",
            log_destination=logs.arn,
            iam_role_arn=role.arn,
            opts=inside,
        )

    with pytest.raises(PermissionError, match="not vpc-flow-logs"):
        build(program)


def test_invalid_log_retention_fails(build: Build) -> None:
    with pytest.raises(ValueError, match="not 31"):
        build(lambda opts: cloudwatch.LogGroup("l", retention_in_days=31, opts=child(opts)))


def test_references_of_echoed_resources_must_exist(build: Build) -> None:
    def program(opts: pulumi.ResourceOptions) -> None:
        eks.Addon("a", cluster_name="none", addon_name="coredns", opts=child(opts))

    with pytest.raises(ClientError, match="No cluster found for name: none"):
        build(program)


def test_second_deployment_in_a_shared_account_fails_with_a_hint(
    cloud: Cloud,
) -> None:
    with pytest.raises(RuntimeError, match="move the test to another module"), account():
        pass


def test_missing_types_have_no_creator() -> None:
    assert not set(missing.MISSING) & set(CREATORS)


@pytest.mark.parametrize(
    ("service", "call", "arguments"),
    [
        ("eks", "create_addon", {"clusterName": "c", "addonName": "coredns"}),
        ("eks", "create_access_entry", {"clusterName": "c", "principalArn": "arn"}),
        (
            "eks",
            "create_pod_identity_association",
            {"clusterName": "c", "namespace": "n", "serviceAccount": "s", "roleArn": "arn"},
        ),
    ],
)
def test_missing_eks_types_are_not_implemented_by_moto(
    cloud: Cloud, service: str, call: str, arguments: dict[str, str]
) -> None:
    # Once moto has it, create it there.
    with pytest.raises((ClientError, NotImplementedError), match=r"404|not been implemented"):
        getattr(cloud.client(service), call)(**arguments)
