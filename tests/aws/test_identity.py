"""A team's role as IAM has it; what its documents allow is judged in test_bucket_access."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi
import pytest

from infra.sites.aws.bucket_access import TeamBuckets
from infra.sites.aws.identity import TeamIdentity
from infra.sites.aws.policy_documents import ROLE_NAME_MAX, role_name
from tests.aws.clusters import bare_cluster
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud, Deployed, deployed_on

KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/data"
ROLE = "training-team-research"


def program(cloud: Cloud, opts: pulumi.ResourceOptions) -> TeamIdentity:
    buckets = TeamBuckets(datasets="d", checkpoints="c", artifacts="a")
    return TeamIdentity("identity", "research", bare_cluster(cloud), buckets, KEY, opts)


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    yield from deployed_on(program)


def test_role_has_exactly_its_two_inline_policies(deployed: Deployed) -> None:
    iam = deployed.cloud.iam
    assert set(iam.list_role_policies(RoleName=ROLE)["PolicyNames"]) == {"objects", "key"}
    assert iam.list_attached_role_policies(RoleName=ROLE)["AttachedPolicies"] == []


def test_long_role_name_is_truncated_and_stays_unique() -> None:
    assert role_name("training", "research") == ROLE
    long = [role_name("training-production-eu-west-1", f"{'t' * 50}{one}") for one in "ab"]
    assert len(set(long)) == 2
    assert all(len(name) == ROLE_NAME_MAX for name in long)
