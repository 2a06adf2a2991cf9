"""Bucket access: policies read back from IAM and S3, evaluated for every pair of teams."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pytest
from moto import mock_aws

from infra.domain import naming
from infra.sections.storage import BucketsConfig
from infra.sites.aws import bucket_access
from infra.sites.aws.buckets import Buckets
from infra.sites.aws.identity import TeamIdentity
from tests.aws.clusters import bare_cluster
from tests.aws.iam_evaluation import Document, Request, allowed
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud, deploy

pytestmark = [pytest.mark.core, pytest.mark.long(3)]

KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/data"
OTHER_ACCOUNT = "999999999999"

OPERATIONS = {
    "Get": "s3:GetObject",
    "Put": "s3:PutObject",
    "Delete": "s3:DeleteObject",
    "Abort": "s3:AbortMultipartUpload",
    "List": "s3:ListBucket",
}
WRITES = ("Put", "Delete", "Abort")


@dataclass(frozen=True, kw_only=True, order=True)
class Tenant:
    """A team of a cluster. Each cluster's stack has buckets of its own."""

    cluster: str
    team: str

    @property
    def arn(self) -> str:
        return f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{self.cluster}"

    def bucket(self, role: str) -> str:
        return f"acme-{self.cluster}-{role}"


TENANTS = [
    # Names that begin, end or are written into each other.
    Tenant(cluster="dev", team="a"),
    Tenant(cluster="dev", team="a2"),
    Tenant(cluster="dev", team="team-a"),
    Tenant(cluster="dev", team="a-team"),
    # The same namespace in another cluster, whose name begins alike.
    Tenant(cluster="dev2", team="a"),
]


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """Every document, as the cloud has it."""

    trust: Mapping[Tenant, Document]
    policies: Mapping[Tenant, list[Document]]
    buckets: Mapping[str, Document]


def _program(cloud: Cloud, opts: pulumi.ResourceOptions) -> None:
    for cluster in sorted({tenant.cluster for tenant in TENANTS}):
        record = bare_cluster(cloud, cluster)
        key = cloud.client("kms").create_key()["KeyMetadata"]["Arn"]
        settings = BucketsConfig(prefix=f"acme-{cluster}")
        buckets = Buckets(f"buckets-{cluster}", settings, ACCOUNT, key, opts)
        for tenant in TENANTS:
            if tenant.cluster == cluster:
                name = f"{cluster}-{tenant.team}"
                TeamIdentity(name, tenant.team, record, buckets.names, KEY, opts)


@pytest.fixture(scope="module")
def rendered() -> Iterator[Rendered]:
    """Two stacks in one account; read back from IAM and S3."""
    with mock_aws():
        cloud = Cloud()
        deploy(lambda opts: _program(cloud, opts), cloud)
        trust, policies = {}, {}
        for tenant in TENANTS:
            role = f"{tenant.cluster}-team-{tenant.team}"
            trust[tenant] = cloud.iam.get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]
            names = cloud.iam.list_role_policies(RoleName=role)["PolicyNames"]
            assert not cloud.iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
            policies[tenant] = [
                cloud.iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
                for name in names
            ]
        s3 = cloud.client("s3")
        buckets = {
            found["Name"]: json.loads(s3.get_bucket_policy(Bucket=found["Name"])["Policy"])
            for found in s3.list_buckets()["Buckets"]
        }
        yield Rendered(trust=trust, policies=policies, buckets=buckets)


def request(
    operation: str, bucket: str, prefix: str | None, *, tls: bool = True, account: str = ACCOUNT
) -> Request:
    context = {
        "aws:SecureTransport": str(tls).lower(),
        "aws:PrincipalAccount": account,
        "aws:PrincipalIsAWSService": "false",
    }
    arn = bucket_access.bucket_arn(bucket)
    if operation != "List":
        arn = f"{arn}/{prefix}step-00000042/shard-0"
    elif prefix is not None:
        context["s3:prefix"] = prefix
    return Request(action=OPERATIONS[operation], resource=arn, account=account, context=context)


def may(rendered: Rendered, tenant: Tenant, asked: Request) -> bool:
    bucket = asked.resource.removeprefix("arn:aws:s3:::").partition("/")[0]
    return allowed(
        asked,
        identity=rendered.policies[tenant],
        resource=rendered.buckets[bucket],
        owner=ACCOUNT,
    )


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("role", ["checkpoints", "artifacts"])
def test_team_reaches_its_own_objects_only(rendered: Rendered, role: str, operation: str) -> None:
    reached = {
        (one, other)
        for one, other in itertools.product(TENANTS, TENANTS)
        if may(rendered, one, request(operation, other.bucket(role), f"{other.team}/"))
    }
    assert reached == {(tenant, tenant) for tenant in TENANTS}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_team_pods_read_their_datasets_and_no_pod_writes_them(
    rendered: Rendered, operation: str
) -> None:
    reached = {
        (one, other)
        for one, other in itertools.product(TENANTS, TENANTS)
        if may(rendered, one, request(operation, other.bucket("datasets"), f"{other.team}/"))
    }
    assert reached == (set() if operation in WRITES else {(t, t) for t in TENANTS})


@pytest.mark.parametrize("role", ["datasets", "checkpoints", "artifacts"])
@pytest.mark.parametrize("prefix", [None, "", "a", "a2", "team-a/../a/", "/a/"])
def test_list_requests_beyond_the_team_prefix_are_denied(
    rendered: Rendered, role: str, prefix: str | None
) -> None:
    for tenant in TENANTS:
        asked = request("List", tenant.bucket(role), prefix)
        own = prefix is not None and prefix.startswith(f"{tenant.team}/")
        assert may(rendered, tenant, asked) is own, tenant


@pytest.mark.parametrize("operation", OPERATIONS)
def test_access_logs_are_unreachable_for_teams(rendered: Rendered, operation: str) -> None:
    for tenant in TENANTS:
        asked = request(operation, tenant.bucket("logs"), f"{tenant.team}/")
        assert not may(rendered, tenant, asked)


@pytest.mark.parametrize(
    "action",
    [
        "s3:DeleteObjectVersion",
        "s3:PutBucketPolicy",
        "s3:PutObjectAcl",
        "s3:PutLifecycleConfiguration",
    ],
)
def test_pods_cannot_change_buckets_or_object_versions(rendered: Rendered, action: str) -> None:
    for tenant in TENANTS:
        for arn in ("", f"/{tenant.team}/x"):
            resource = bucket_access.bucket_arn(tenant.bucket("checkpoints")) + arn
            asked = request("Get", tenant.bucket("checkpoints"), f"{tenant.team}/")
            asked = Request(
                action=action, resource=resource, account=ACCOUNT, context=asked.context
            )
            assert not may(rendered, tenant, asked)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_requests_without_tls_are_denied(rendered: Rendered, operation: str) -> None:
    tenant = TENANTS[0]
    bucket, prefix = tenant.bucket("checkpoints"), f"{tenant.team}/"
    assert may(rendered, tenant, request(operation, bucket, prefix, tls=True))
    assert not may(rendered, tenant, request(operation, bucket, prefix, tls=False))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("role", ["datasets", "checkpoints", "artifacts", "logs"])
def test_another_account_is_denied_even_with_an_added_allow_statement(
    rendered: Rendered, role: str, operation: str
) -> None:
    everything: dict[str, Any] = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    bucket = TENANTS[0].bucket(role)
    document = rendered.buckets[bucket]
    opened = {"Statement": [*document["Statement"], everything | {"Principal": "*"}]}
    asked = {
        account: request(operation, bucket, "a/", account=account)
        for account in (ACCOUNT, OTHER_ACCOUNT)
    }
    found = {
        account: allowed(
            one, identity=[{"Statement": [everything]}], resource=opened, owner=ACCOUNT
        )
        for account, one in asked.items()
    }
    assert found == {ACCOUNT: True, OTHER_ACCOUNT: False}


def test_anonymous_access_is_denied_even_with_an_added_public_statement(
    rendered: Rendered,
) -> None:
    bucket = TENANTS[0].bucket("datasets")
    everyone = {"Effect": "Allow", "Action": "s3:*", "Resource": "*", "Principal": "*"}
    opened = {"Statement": [*rendered.buckets[bucket]["Statement"], everyone]}
    anonymous = Request(
        action="s3:GetObject",
        resource=f"{bucket_access.bucket_arn(bucket)}/a/x",
        account=None,
        context={"aws:SecureTransport": "true"},
    )
    assert not allowed(anonymous, resource=opened, owner=ACCOUNT)


def delivery(target: str, source: str, *, prefix: str, account: str = ACCOUNT) -> Request:
    return Request(
        action="s3:PutObject",
        resource=f"{bucket_access.bucket_arn(target)}/{prefix}2026-11-21",
        account=None,
        service=bucket_access.LOG_DELIVERY,
        context={
            "aws:SecureTransport": "true",
            "aws:PrincipalIsAWSService": "true",
            "aws:SourceAccount": account,
            "aws:SourceArn": bucket_access.bucket_arn(source),
        },
    )


def test_access_logs_are_accepted_from_buckets_of_the_stack_only(rendered: Rendered) -> None:
    logs = TENANTS[0].bucket("logs")
    own = TENANTS[0].bucket("datasets")
    prefix = bucket_access.log_prefix(own)

    def delivered(asked: Request) -> bool:
        return allowed(asked, resource=rendered.buckets[logs], owner=ACCOUNT)

    assert delivered(delivery(logs, own, prefix=prefix))
    assert not delivered(delivery(logs, own, prefix="elsewhere/"))
    assert not delivered(delivery(logs, own, prefix=prefix, account=OTHER_ACCOUNT))
    assert not delivered(delivery(logs, "somebodys-bucket", prefix=prefix))


def assumption(tenant: Tenant, action: str, **changed: str) -> Request:
    context = {
        "aws:RequestTag/eks-cluster-arn": tenant.arn,
        "aws:RequestTag/kubernetes-namespace": naming.namespace(tenant.team),
        "aws:RequestTag/kubernetes-service-account": naming.SERVICE_ACCOUNT,
    }
    return Request(
        action=action,
        resource="*",
        account=None,
        service=changed.pop("service", "pods.eks.amazonaws.com"),
        context=context | changed,
    )


@pytest.mark.parametrize("action", ["sts:AssumeRole", "sts:TagSession"])
def test_team_role_is_assumable_by_pods_of_its_team_and_cluster_only(
    rendered: Rendered, action: str
) -> None:
    got = {
        (one, other)
        for one, other in itertools.product(TENANTS, TENANTS)
        if allowed(assumption(one, action), resource=rendered.trust[other], owner=ACCOUNT)
    }
    assert got == {(tenant, tenant) for tenant in TENANTS}


@pytest.mark.parametrize(
    "changed",
    [
        # A cluster of the same name and with the same namespaces, in another account.
        {"aws:RequestTag/eks-cluster-arn": f"arn:aws:eks:{REGION}:{OTHER_ACCOUNT}:cluster/dev"},
        {"aws:RequestTag/kubernetes-service-account": "default"},
        {"service": "ec2.amazonaws.com"},
    ],
)
def test_team_role_is_not_assumable_by_other_principals(
    rendered: Rendered, changed: dict[str, str]
) -> None:
    asked = assumption(TENANTS[0], "sts:AssumeRole", **changed)
    assert not allowed(asked, resource=rendered.trust[TENANTS[0]], owner=ACCOUNT)


@pytest.mark.parametrize(
    ("key", "through", "bucket", "granted"),
    [
        (KEY, f"s3.{REGION}.amazonaws.com", "acme-dev-checkpoints", True),
        (KEY, f"s3.{REGION}.amazonaws.com", "acme-dev2-checkpoints", False),
        (KEY, f"fsx.{REGION}.amazonaws.com", "acme-dev-checkpoints", False),
        (f"{KEY}2", f"s3.{REGION}.amazonaws.com", "acme-dev-checkpoints", False),
    ],
)
def test_key_is_usable_through_s3_for_buckets_of_the_stack_only(
    rendered: Rendered, key: str, through: str, bucket: str, granted: bool
) -> None:
    for action in ("kms:Decrypt", "kms:GenerateDataKey"):
        asked = Request(
            action=action,
            resource=key,
            account=ACCOUNT,
            context={
                "kms:ViaService": through,
                "kms:EncryptionContext:aws:s3:arn": bucket_access.bucket_arn(bucket),
            },
        )
        assert allowed(asked, identity=rendered.policies[TENANTS[0]], owner=ACCOUNT) is granted


@pytest.mark.parametrize(
    ("principal", "bucket", "granted"),
    [
        ("s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_fs-0a1", "b", True),
        ("s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_fs-0a1", "c", False),
        ("eks.amazonaws.com/AWSServiceRoleForAmazonEKS", "b", False),
    ],
)
def test_key_is_usable_by_fsx_for_linked_buckets_only(
    principal: str, bucket: str, granted: bool
) -> None:
    statement = bucket_access.lustre_key_statement(ACCOUNT, REGION, ["b"])
    asked = Request(
        action="kms:GenerateDataKey",
        resource=KEY,
        account=ACCOUNT,
        context={
            "aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{principal}",
            "kms:CallerAccount": ACCOUNT,
            "kms:ViaService": f"s3.{REGION}.amazonaws.com",
            "kms:EncryptionContext:aws:s3:arn": bucket_access.bucket_arn(bucket),
        },
    )
    assert allowed(asked, resource={"Statement": [statement]}, owner=ACCOUNT) is granted
