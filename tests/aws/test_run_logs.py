"""The log group of runs: encrypted, bounded, masked, and only ever appended to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest

from infra.sites.aws import run_log_access
from infra.sites.aws.controller_roles import run_logs
from infra.sites.aws.keys import Keys
from tests.aws.clusters import bare_cluster, policy_of_pods
from tests.aws.iam_evaluation import Request, allowed
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud, Deployed, deployed_on
from tests.aws.networks import SITE

GROUP = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/trainyard/training/runs"
OTHER = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/eks/other/cluster"
SERVICE = f"logs.{REGION}.amazonaws.com"


def program(cloud: Cloud, opts: pulumi.ResourceOptions) -> pulumi.Resource:
    statement = run_log_access.key_statement(ACCOUNT, REGION, "training")
    key = Keys("keys", SITE, opts, data_statements=(statement,)).data_key_arn
    shipper = ("logging", "fluent-bit")
    return run_logs(
        "logs", bare_cluster(cloud), shipper, key, opts, retention_days=30, protect=True
    )


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    yield from deployed_on(program)


def test_logs_are_encrypted_with_the_stack_key_and_have_a_retention(deployed: Deployed) -> None:
    [group] = deployed.cloud.client("logs").describe_log_groups()["logGroups"]
    assert group["arn"].removesuffix(":*") == GROUP
    assert group["retentionInDays"] == 30
    assert group["kmsKeyId"].startswith(f"arn:aws:kms:{REGION}:{ACCOUNT}:key/")
    assert deployed.one("aws:cloudwatch/logGroup:LogGroup").retain_on_delete


@pytest.mark.parametrize(
    ("action", "resource", "may"),
    [
        ("logs:PutLogEvents", f"{GROUP}:log-stream:team-a.pod.trainer", True),
        ("logs:CreateLogStream", f"{GROUP}:log-stream:team-a.pod.trainer", True),
        ("logs:PutLogEvents", f"{OTHER}:log-stream:kube-apiserver-audit", False),
        ("logs:GetLogEvents", f"{GROUP}:log-stream:team-a.pod.trainer", False),
        ("logs:DeleteLogStream", f"{GROUP}:log-stream:team-a.pod.trainer", False),
        ("logs:CreateLogGroup", f"{GROUP}:*", False),
        ("logs:PutRetentionPolicy", f"{GROUP}:*", False),
    ],
)
def test_shipper_may_append_but_not_read_or_delete(
    deployed: Deployed, action: str, resource: str, may: bool
) -> None:
    document = policy_of_pods(deployed)
    call = Request(action=action, resource=resource, account=ACCOUNT)
    assert allowed(call, identity=[document], owner=ACCOUNT) == may


@pytest.mark.parametrize(("group", "may"), [(GROUP, True), (OTHER, False)])
def test_cloudwatch_may_use_the_key_for_this_log_group_only(
    deployed: Deployed, group: str, may: bool
) -> None:
    kms = deployed.cloud.client("kms")
    key = deployed.one("aws:kms/key:Key", "keys-data").id
    policy: dict[str, Any] = json.loads(
        kms.get_key_policy(KeyId=key, PolicyName="default")["Policy"]
    )
    call = Request(
        action="kms:GenerateDataKey",
        resource="*",
        account=None,
        service=SERVICE,
        context={"kms:EncryptionContext:aws:logs:arn": group},
    )
    assert allowed(call, resource=policy, owner=ACCOUNT) == may
