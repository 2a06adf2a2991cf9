"""The rights of the roles that deploy and detect drift, against what the committed stacks' resources call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from botocore.client import BaseClient

from bootstrap import permissions
from bootstrap.permissions import Target
from infra.cli.render import ROOT
from tests.aws.iam_evaluation import matches
from tests.aws.moto_cloud import REGION, Cloud, Deployed, account, deploy, missing
from tests.aws.moto_cloud.iam import managed_policy
from tests.aws.programs import whole
from tests.aws.provider_calls import PROVIDER_CALLS, Calls
from tests.aws.test_bootstrap import HOME, many, may, program

pytestmark = pytest.mark.long(45)

CALLED = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:PutBucketEncryption": "s3:PutEncryptionConfiguration",
    "s3:PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
    "s3:PutBucketLifecycleConfiguration": "s3:PutLifecycleConfiguration",
}
"""S3's operations whose right has another name."""

ONCE_PER_ACCOUNT = {"aws:servicequotas/serviceQuota:ServiceQuota"}
"""Created by an administrator, with the bootstrap program."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A committed stack in an account of its own."""

    target: Target
    deployed: Deployed
    called: frozenset[str]
    """Operations that creating it called, as `ec2:CreateVpc`."""

    @property
    def deployment(self) -> list[dict[str, Any]]:
        """Documents of the role that deploys it, but for the state's."""
        return [*permissions.deployment(HOME, self.target), *_reads(self.target)]

    @property
    def provider(self) -> list[Calls]:
        """What the provider calls for its resources."""
        return [PROVIDER_CALLS[type_] for type_ in _types(self.deployed)]


@pytest.fixture(scope="module", params=["dev", "prod"])
def stack(request: pytest.FixtureRequest) -> Stack:
    called: set[str] = set()
    plain = BaseClient._make_api_call

    def noted(client: Any, operation: str, arguments: Any) -> Any:
        service = client.meta.service_model.signing_name
        called.add(f"{service}:{operation}")
        return plain(client, operation, arguments)

    name = request.param
    with account() as cloud, pytest.MonkeyPatch.context() as patched:
        patched.setattr(BaseClient, "_make_api_call", noted)
        deployed = deploy(whole(name), cloud)
    target = Target(
        stack=name, cluster=f"training-{name}", bucket_prefix=_prefix(name), region=REGION
    )
    return Stack(target=target, deployed=deployed, called=frozenset(called))


def test_a_deployment_may_do_all_that_creating_its_stack_does(stack: Stack) -> None:
    needed = {CALLED.get(one, one) for one in stack.called} - {"sts:GetCallerIdentity"}
    assert len(needed) > 50
    assert _denied(needed, stack.deployment) == []
    own = stack.deployment[:3]
    for one in stack.deployed.all("aws:iam/role:Role"):
        assert may(own, "iam:CreateRole", one.outputs["arn"]), one.name
    for one in stack.deployed.all("aws:s3/bucket:Bucket"):
        assert may(own, "s3:PutBucketPolicy", f"arn:aws:s3:::{one.inputs['bucket']}")


def test_what_the_provider_calls_is_known_of_every_type(stack: Stack) -> None:
    assert _types(stack.deployed) - set(PROVIDER_CALLS) == set()
    assert set(missing.MISSING) - ONCE_PER_ACCOUNT - set(PROVIDER_CALLS) == set()


def test_a_deployment_may_read_change_and_delete_every_resource_of_its_stack(stack: Stack) -> None:
    needed = {action for calls in stack.provider for action in calls.reads | calls.writes}
    assert _denied(needed, stack.deployment) == []


def test_drift_detection_may_read_every_resource_of_its_stack(stack: Stack) -> None:
    needed = {action for calls in stack.provider for action in calls.reads}
    assert _denied(needed, _reads(stack.target)) == []


def _types(deployed: Deployed) -> set[str]:
    return {one.type for one in deployed.created if one.type.startswith(("aws:", "eks:"))}


def _reads(target: Target) -> list[dict[str, Any]]:
    """Documents of a role that refreshes a stack, but for the state's."""
    aws = [managed_policy(arn)["Document"] for arn in permissions.READ_POLICIES]
    return [permissions.descriptions(target), *aws]


def _denied(actions: set[str], policies: list[dict[str, Any]]) -> list[str]:
    """Return the actions that no statement allows, whatever their resource."""
    patterns = [
        pattern.lower()
        for document in policies
        for statement in document["Statement"]
        if statement["Effect"] == "Allow"
        for pattern in many(statement["Action"])
    ]
    return [
        action
        for action in sorted(actions)
        if not any(matches(p, action.lower()) for p in patterns)
    ]


def _prefix(stack: str) -> str:
    name = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text())
    return str(name["config"]["trainyard:storage"]["buckets"]["prefix"]).replace("acme", "tests")


def test_an_existing_provider_of_github_is_used(cloud: Cloud) -> None:
    made = deploy(program(githubProvider=False), cloud)
    assert made.all("aws:iam/openIdConnectProvider:OpenIdConnectProvider") == []
