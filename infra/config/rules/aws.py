"""The sections that a cluster on AWS requires, and that another one rejects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.config.model import StackConfig
from infra.domain.pools import Autoscaler
from infra.sections.errors import ConfigIssue, issue

_NEEDED: Final = {
    "aws": "region and account",
    "network": "cidr and zones, or existing",
    "storage.buckets": "the buckets' prefix",
}


def check_aws_sections(stack: StackConfig) -> Iterator[ConfigIssue]:
    given = {
        "aws": stack.aws is not None,
        "network": stack.network is not None,
        "storage.buckets": stack.storage.buckets is not None,
        "storage.fsx": stack.storage.fsx is not None,
        "storage.efs": stack.storage.efs is not None,
        "interruption": "interruption" in stack.model_fields_set,
        "autoscaler": stack.autoscaler is not Autoscaler.NONE,
    }
    for path, is_set in given.items():
        if stack.eks and not is_set and path in _NEEDED:
            yield issue(
                "missing",
                path,
                "missing",
                f"a cluster on AWS requires {_NEEDED[path]}",
                "add it",
            )
        if not stack.eks and is_set:
            yield issue(
                "aws-only",
                path,
                "not valid on an existing cluster",
                "requires cluster.provider: eks",
                "remove it, or change the provider",
            )


def check_role_account(stack: StackConfig, path: str, arn: str) -> Iterator[ConfigIssue]:
    account = arn.split(":")[4]
    if stack.aws and stack.aws.account != account:
        yield issue(
            "role-account",
            path,
            f"a role of account {account}",
            f"must be a role of account {stack.aws.account} (aws.account)",
            "name a role of that account, which people of other accounts may assume",
        )
