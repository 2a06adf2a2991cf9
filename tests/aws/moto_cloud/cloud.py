"""Access to moto, and the questions that several services ask: does this subnet, role, key exist?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import boto3
from moto import mock_aws

ACCOUNT: Final = "123456789012"
"""Moto's account."""
REGION: Final = "us-east-1"

_POLICY_VARIABLE: Final = re.compile(r"\$\{[^}]*\}")


@cache
def _client(service: str) -> Any:
    # Clients outlive a test: moto answers whatever mock is active when they are used.
    session = boto3.Session(
        aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION
    )
    return session.client(service)


class Cloud:
    """The account of one test. Every check raises, with moto's own message or one line."""

    def client(self, service: str) -> Any:
        """A boto3 client in the test's region."""
        return _client(service)

    @property
    def ec2(self) -> Any:
        return self.client("ec2")

    @property
    def iam(self) -> Any:
        return self.client("iam")

    def subnets(self, ids: Iterable[str]) -> list[dict[str, Any]]:
        """Subnets that exist."""
        found: list[dict[str, Any]] = self.ec2.describe_subnets(SubnetIds=list(ids))["Subnets"]
        return found

    def security_groups(self, ids: Iterable[str]) -> list[dict[str, Any]]:
        """Security groups that exist."""
        if not (wanted := list(ids)):
            return []
        found: list[dict[str, Any]] = self.ec2.describe_security_groups(GroupIds=wanted)[
            "SecurityGroups"
        ]
        return found

    def role(self, arn: str, *, trusting: str) -> dict[str, Any]:
        """A role that exists and that the service (`eks.amazonaws.com`) may assume."""
        name = _own_name(arn, "role")
        found: dict[str, Any] = self.iam.get_role(RoleName=name)["Role"]
        if found["Arn"] != arn:
            raise LookupError(f"role {arn} does not exist; {found['Arn']} does")
        trusted = {
            service
            for statement in listed(found["AssumeRolePolicyDocument"]["Statement"])
            for service in listed(statement.get("Principal", {}).get("Service", []))
        }
        if trusting not in trusted:
            raise PermissionError(f"role {name} trusts {sorted(trusted)}, not {trusting}")
        return found

    def key(self, arn: str) -> dict[str, Any]:
        """A KMS key that exists and is enabled."""
        found: dict[str, Any] = self.client("kms").describe_key(KeyId=arn)["KeyMetadata"]
        if not found["Enabled"]:
            raise LookupError(f"key {arn} is not enabled")
        return found

    def cluster(self, name: str) -> dict[str, Any]:
        """An EKS cluster that exists."""
        found: dict[str, Any] = self.client("eks").describe_cluster(name=name)["cluster"]
        return found

    def bucket(self, name: str) -> None:
        """A bucket that exists."""
        self.client("s3").head_bucket(Bucket=name)

    def log_group(self, arn: str) -> None:
        """A CloudWatch log group that exists."""
        name = arn.removesuffix(":*").rpartition(":log-group:")[2]
        groups = self.client("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
        if name not in {group["logGroupName"] for group in groups}:
            raise LookupError(f"log group {name} does not exist")


_open: list[Cloud] = []


@contextmanager
def account() -> Iterator[Cloud]:
    """An empty account, but for what AWS puts into each; one at a time."""
    if _open:
        raise RuntimeError("this module shares one deployment: move the test to another module")
    with mock_aws():
        _open.append(Cloud())
        try:
            yield _open[0]
        finally:
            _open.clear()


def _own_name(arn: str, kind: str) -> str:
    prefix = f"arn:aws:iam::{ACCOUNT}:{kind}/"
    if not arn.startswith(prefix):
        raise LookupError(f"{arn!r} is not a {kind} of account {ACCOUNT}")
    return arn.rpartition("/")[2]


def listed(value: Any) -> list[Any]:
    """One or many, as IAM documents have it, as a list."""
    return value if isinstance(value, list) else [value]


def name_of(inputs: Mapping[str, Any]) -> str:
    """The name that the program chose, else that of the resource."""
    return str(inputs.get("name", inputs["__name"]))


def tags_of(inputs: Mapping[str, Any]) -> list[dict[str, str]]:
    """Own and default tags, as most of AWS's APIs want them."""
    return [{"Key": key, "Value": value} for key, value in sorted(tag_map(inputs).items())]


def tag_map(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Own and default tags, as EKS, SQS and CloudWatch Logs want them."""
    return dict(inputs.get("tagsAll", {}))


def specification(kind: str, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """EC2's TagSpecifications; empty where there is no tag."""
    tags = tags_of(inputs)
    return [{"ResourceType": kind, "Tags": tags}] if tags else []


def document(text: str) -> dict[str, Any]:
    """An IAM document. Raises ValueError for one that AWS would refuse, or that says nothing."""
    parsed: dict[str, Any] = json.loads(text)
    if parsed.get("Version") != "2012-10-17":
        raise ValueError(f"policy version {parsed.get('Version')!r}, not 2012-10-17")
    for statement in listed(parsed["Statement"]):
        if statement.get("Effect") not in ("Allow", "Deny"):
            raise ValueError(f"statement without an effect: {statement}")
        for action in listed(statement.get("Action", statement.get("NotAction", []))):
            if action != "*" and ":" not in action:
                raise ValueError(f"action {action!r} names no service")
        for resource in listed(statement.get("Resource", [])):
            plain = _POLICY_VARIABLE.sub("", resource)
            if plain != "*" and not plain.startswith("arn:"):
                raise ValueError(f"resource {resource!r} is no ARN")
    return parsed
