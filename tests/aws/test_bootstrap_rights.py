"""The rights of the role that deploys, against what creating the committed stacks calls."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from botocore.client import BaseClient

from bootstrap import permissions
from bootstrap.permissions import Target
from infra.cli.render import ROOT
from tests.aws.iam_evaluation import matches
from tests.aws.moto_cloud import Cloud, deploy
from tests.aws.moto_cloud.iam import managed_policy
from tests.aws.programs import whole
from tests.aws.test_bootstrap import HOME, many, may, program

CALLED = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:PutBucketEncryption": "s3:PutEncryptionConfiguration",
    "s3:PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
    "s3:PutBucketLifecycleConfiguration": "s3:PutLifecycleConfiguration",
}
"""S3's operations whose right has another name."""


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_a_deployment_may_do_all_that_creating_its_stack_does(
    stack: str, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: set[str] = set()
    plain = BaseClient._make_api_call

    def noted(client: Any, operation: str, arguments: Any) -> Any:
        service = client.meta.service_model.signing_name
        called.add(f"{service}:{operation}")
        return plain(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    target = Target(stack=stack, cluster=f"training-{stack}", bucket_prefix=_prefix(stack))
    made = deploy(whole(stack), cloud)
    policies = permissions.deployment(HOME, target)
    policies += [managed_policy(arn)["Document"] for arn in permissions.READ_POLICIES]
    patterns = [
        pattern.lower()
        for document in policies
        for statement in document["Statement"]
        if statement["Effect"] == "Allow"
        for pattern in many(statement["Action"])
    ]
    needed = {CALLED.get(one, one) for one in called} - {"sts:GetCallerIdentity"}
    assert len(needed) > 50
    assert [n for n in sorted(needed) if not any(matches(p, n.lower()) for p in patterns)] == []
    for one in made.all("aws:iam/role:Role"):
        assert may(policies[:3], "iam:CreateRole", one.outputs["arn"]), one.name
    for one in made.all("aws:s3/bucket:Bucket"):
        assert may(policies[:3], "s3:PutBucketPolicy", f"arn:aws:s3:::{one.inputs['bucket']}")


def _prefix(stack: str) -> str:
    name = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text())
    return str(name["config"]["trainyard:storage"]["buckets"]["prefix"]).replace("acme", "tests")


def test_an_existing_provider_of_github_is_used(cloud: Cloud) -> None:
    made = deploy(program(githubProvider=False), cloud)
    assert made.all("aws:iam/openIdConnectProvider:OpenIdConnectProvider") == []
