"""Secret access: policies read back from IAM, evaluated for every pair of teams."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest

from infra.sites.aws import secret_access
from infra.sites.aws.controller_roles import secret_readers
from infra.sites.aws.policy_documents import role_name
from tests.aws.clusters import bare_cluster
from tests.aws.iam_evaluation import Document, Request, allowed
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud, Deployed, deployed_on

SECRETS = {
    # Names that begin, end or are written into each other.
    "a": ("acme/a/hub", "acme/hub"),
    "a2": ("acme/a2/hub", "acme/hub2"),
    "a-secrets": ("acme/a/hub-more",),
}
PAIRS = list(itertools.product(SECRETS, SECRETS))


def program(cloud: Cloud, opts: pulumi.ResourceOptions) -> pulumi.Resource:
    return secret_readers("secrets", bare_cluster(cloud), SECRETS, opts)


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    yield from deployed_on(program)


def _may(document: Document, action: str, resource: str) -> bool:
    call = Request(action=action, resource=resource, account=ACCOUNT)
    return allowed(call, identity=[document], owner=ACCOUNT)


def _reader(deployed: Deployed, team: str) -> dict[str, Any]:
    found: dict[str, Any] = deployed.cloud.iam.get_role(
        RoleName=role_name("training", team, secret_access.OF)
    )["Role"]
    return found


def _policy(deployed: Deployed, role: str, name: str) -> dict[str, Any]:
    iam = deployed.cloud.iam
    assert iam.list_role_policies(RoleName=role)["PolicyNames"] == [name]
    assert iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == []
    found: dict[str, Any] = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
    return found


def _controller(deployed: Deployed) -> str:
    made = deployed.one("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    return str(made.inputs["roleArn"])


@pytest.mark.parametrize(("reader", "owner"), PAIRS)
def test_reader_role_reads_secrets_of_its_team_only(
    deployed: Deployed, reader: str, owner: str
) -> None:
    role = _reader(deployed, reader)["RoleName"]
    document = _policy(deployed, role, "secrets")
    for name in SECRETS[owner]:
        arn = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{name}-AbCdEf"
        assert _may(document, "secretsmanager:GetSecretValue", arn) == (reader == owner)
        for action in ("PutSecretValue", "DeleteSecret", "UpdateSecret", "ListSecrets"):
            assert not _may(document, f"secretsmanager:{action}", arn)


def test_only_the_controller_assumes_reader_roles_and_it_reads_nothing_itself(
    deployed: Deployed,
) -> None:
    arn = _controller(deployed)
    document = _policy(deployed, arn.rpartition("/")[2], "readers")
    for team in SECRETS:
        reader = _reader(deployed, team)
        [statement] = reader["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"] == {"AWS": arn}
        assert _may(document, "sts:AssumeRole", reader["Arn"])
        assert reader["Arn"] == secret_access.reader_arn(ACCOUNT, "training", team)
    pods = f"arn:aws:iam::{ACCOUNT}:role/{role_name('training', 'a')}"
    assert not _may(document, "sts:AssumeRole", pods)
    assert "secretsmanager" not in json.dumps(document)


def test_reader_role_differs_from_the_team_pod_role() -> None:
    pods = {role_name("training", team) for team in SECRETS}
    readers = {role_name("training", team, secret_access.OF) for team in SECRETS}
    assert len(pods | readers) == 2 * len(SECRETS)
