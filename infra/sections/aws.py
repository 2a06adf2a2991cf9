"""The AWS account and region, and the sections that require a cluster on AWS."""

from __future__ import annotations

from pydantic import Field

from infra.sections.aws_types import AccountId, Region, TagKey, TagValue
from infra.sections.types import Bool, StrictModel


class AwsConfig(StrictModel):
    """AWS account and region of the stack."""

    region: Region = Field(description="an AWS region such as us-east-1")
    """AWS region of the stack."""
    account: AccountId = Field(description="12 digits in quotes")
    """Account; credentials of another one are rejected."""
    tags: dict[TagKey, TagValue] = Field(default={}, max_length=40)
    """Tags of all AWS resources, at most 40, beside the stack's own."""


class InterruptionConfig(StrictModel):
    """Notice of a spot reclaim in pods, beside the drain."""

    imds_sidecar: Bool = False
    """Poll instance metadata from each pod, which then reaches the node's credentials."""
