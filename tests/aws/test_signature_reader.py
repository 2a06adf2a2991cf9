"""What policy-controller may read, as IAM has it."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi
import pytest

from infra.sites.aws.controller_roles import signature_reader
from tests.aws.clusters import bare_cluster, policy_of_pods
from tests.aws.iam_evaluation import Request, allowed
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud, Deployed, deployed_on

KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/signing"
OTHER_KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/data"
ELSEWHERE = "eu-central-1"
IMAGES = f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/trainer"


def program(cloud: Cloud, opts: pulumi.ResourceOptions) -> pulumi.Resource:
    registries = (
        f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/trainer",
        f"{ACCOUNT}.dkr.ecr.{ELSEWHERE}.amazonaws.com/ops",
        "ghcr.io/acme/other",
    )
    return signature_reader("signatures", bare_cluster(cloud), registries, KEY, opts)


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    yield from deployed_on(program)


@pytest.mark.parametrize(
    ("action", "resource", "may"),
    [
        ("ecr:GetAuthorizationToken", "*", True),
        ("ecr:BatchGetImage", IMAGES, True),
        ("ecr:BatchGetImage", f"{IMAGES}/cuda", True),
        ("ecr:BatchGetImage", f"{IMAGES}-of-others", False),
        ("ecr:BatchGetImage", f"arn:aws:ecr:{ELSEWHERE}:{ACCOUNT}:repository/ops", True),
        ("ecr:BatchGetImage", f"arn:aws:ecr:{ELSEWHERE}:{ACCOUNT}:repository/trainer", False),
        ("ecr:BatchGetImage", IMAGES.replace("trainer", "acme/other"), False),
        ("ecr:PutImage", IMAGES, False),
        ("ecr:BatchDeleteImage", IMAGES, False),
        ("kms:GetPublicKey", KEY, True),
        ("kms:GetPublicKey", OTHER_KEY, False),
        ("kms:Sign", KEY, False),
    ],
)
def test_signatures_and_the_public_key_are_readable_and_not_writable(
    deployed: Deployed, action: str, resource: str, may: bool
) -> None:
    document = policy_of_pods(deployed)
    call = Request(action=action, resource=resource, account=ACCOUNT)
    assert allowed(call, identity=[document], owner=ACCOUNT) == may
