"""The AWS account and region, and the sections that require a cluster on AWS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from pydantic import Field

from infra.config.aws_types import AccountId, TagKey, TagValue
from infra.config.errors import ConfigIssue, did_you_mean, shown
from infra.config.partial import UNKNOWN, UNKNOWN_ACCOUNT, Check, PartialStack
from infra.config.types import Bool, Str, StrictModel
from infra.domain.catalog import ec2
from infra.domain.cloud import Cloud
from infra.sites.aws.cloud import Aws


class AwsConfig(StrictModel):
    """AWS account and region of the stack."""

    NEUTRAL: ClassVar[Mapping[str, Any]] = {"region": UNKNOWN, "account": UNKNOWN_ACCOUNT}

    region: Str = Field(description="an AWS region such as us-east-1")
    """AWS region of the stack."""
    account: AccountId = Field(description="12 digits in quotes")
    """AWS account; an update with credentials of another account is rejected."""
    tags: dict[TagKey, TagValue] = Field(default={}, max_length=40)
    """Tags of all AWS resources, at most 40; the stack adds its own."""

    def cloud(self, cluster: str, interruption: InterruptionConfig) -> Cloud:
        """Return what objects in the cluster need from AWS."""
        return Aws(
            region=self.region,
            account=self.account,
            cluster=cluster,
            notice_sidecar=interruption.imds_sidecar,
        )


class InterruptionConfig(StrictModel):
    """Notice to pods that their spot node is reclaimed, in addition to the drain."""

    imds_sidecar: Bool = False
    """Poll the instance metadata service from each pod; pods then reach the node's credentials."""


_NEEDED: Final = {
    ("aws",): "region and account",
    ("network",): "cidr and zones, or existing",
    ("storage", "buckets"): "the buckets' prefix",
}


_AWS_ONLY: Final = (*_NEEDED, ("storage", "fsx"), ("storage", "efs"), ("interruption",))


_NO_AUTOSCALER: Final = (None, "none")


def _at(raw: dict[str, Any], keys: tuple[str, ...]) -> Any:
    value: Any = raw
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def check_aws_sections(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require the sections of a cluster on AWS; reject them elsewhere."""
    if stack.provider == "eks":
        for keys, allowed in _NEEDED.items():
            # A section that is missing as a whole is reported already.
            if _at(stack.raw, keys) is None and isinstance(_at(stack.raw, keys[:-1]), dict):
                yield ConfigIssue(
                    path=".".join(keys),
                    code="missing",
                    problem="missing",
                    valid=f"a cluster on AWS requires {allowed}",
                    action="add it",
                )
    elif stack.provider == "existing":
        foreign = [keys for keys in _AWS_ONLY if _at(stack.raw, keys) is not None]
        if stack.raw.get("autoscaler") not in _NO_AUTOSCALER:
            foreign.append(("autoscaler",))
        for keys in foreign:
            yield ConfigIssue(
                path=".".join(keys),
                code="aws-only",
                problem="not valid on an existing cluster",
                valid="requires cluster.provider: eks",
                action="remove it, or change the provider",
            )


def check_region(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require a known region of AWS's public partition."""
    aws = read_aws(stack)
    if aws and (partition := ec2.other_partition(aws.region)):
        yield ConfigIssue(
            path="aws.region",
            code="unsupported-partition",
            problem=f"{shown(aws.region)} is in the partition {partition}, which is not supported",
            valid="must be a region of the partition aws, such as us-east-1",
            action="choose one",
        )
    elif aws and aws.region not in (*ec2.REGIONS, UNKNOWN):
        name = aws.region
        yield ConfigIssue(
            path="aws.region",
            code="unknown-name",
            problem=f"unknown region {shown(name)}",
            valid="must be an AWS region with EKS, such as us-east-1",
            action=did_you_mean(name, ec2.REGIONS, "correct it"),
        )


def read_aws(stack: PartialStack) -> AwsConfig | None:
    """Return the section `aws` of a cluster on EKS."""
    return stack.section("aws", AwsConfig) if stack.on_eks else None


CHECKS: Final[tuple[Check, ...]] = (
    check_aws_sections,
    check_region,
)
