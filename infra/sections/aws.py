"""The AWS account and region, and the sections that require a cluster on AWS."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from infra.domain.catalog import ec2
from infra.sections.errors import did_you_mean, invalid, shown
from infra.sections.types import Bool, Cidr, Int, Str, StrictModel, matching

_TAG_VALUE_MAX: Final = 256

_LOG_DAYS: Final = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827)
_LOG_DAYS_TEXT: Final = ", ".join(map(str, _LOG_DAYS))

PRIVATE: Final = "private"
"""In place of CIDR blocks: the Kubernetes API is reached from the VPC only."""

_PRIVATE_RANGES: Final = tuple(
    ipaddress.ip_network(block)
    for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)

_WIDEST_PUBLIC: Final = {4: 8, 6: 32}
"""By IP version: the shortest prefix that is still one organization's network."""


def _public_cidr(value: str) -> str:
    block = ipaddress.ip_network(value)
    if block.prefixlen < _WIDEST_PUBLIC[block.version]:
        raise invalid(
            "public-endpoint",
            f"must be /{_WIDEST_PUBLIC[4]} or smaller (IPv6: /{_WIDEST_PUBLIC[6]})",
            f"name the networks of your users, or set endpoint: {PRIVATE}",
            "is too wide",
        )
    if any(block.version == r.version and block.subnet_of(r) for r in _PRIVATE_RANGES):  # type: ignore[arg-type]
        raise invalid(
            "private-block",
            "must be public: the VPC reaches the API by its private endpoint",
            "name the public addresses of your users, or remove it",
            "is private",
        )
    return value


def _endpoint(value: Any) -> Any:
    if value == PRIVATE:
        return ()
    if isinstance(value, list) and value:
        return value
    raise invalid("wrong-type", f"must be {PRIVATE}, or a list of CIDR blocks that may reach it")


def _log_days(value: int) -> int:
    if value not in _LOG_DAYS:
        raise invalid(
            "log-retention", f"must be one of {_LOG_DAYS_TEXT} (days)", "choose one of them"
        )
    return value


def _quoted_account(value: Any) -> Any:
    # YAML reads digits without quotes as a number, octal after a leading zero: do not echo it.
    if isinstance(value, int) and not isinstance(value, bool):
        raise invalid(
            "account-id",
            "must be 12 digits in quotes",
            "put it in quotes",
            "a number without quotes, octal if it starts with 0",
            show_value=False,
        )
    return value


def _bucket_prefix(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*[a-z0-9]", value) or len(value) > BUCKET_PREFIX_MAX:
        raise invalid(
            "bucket-prefix",
            "must be lower-case letters, digits and hyphens, starting and ending with a letter or "
            f"digit, 2 to {BUCKET_PREFIX_MAX}",
            "rename it",
        )
    if value.startswith(("xn--", "sthree-", "amzn-s3-demo-")):
        raise invalid(
            "bucket-prefix",
            "must not start with a prefix reserved by S3",
            "rename it",
            "is reserved",
        )
    return value


def _tag_key(value: str) -> str:
    if value.lower().startswith("aws:") or len(value) > 128:
        raise invalid(
            "tag", "must have at most 128 characters and not start with aws:", "rename it"
        )
    return _tag_text(value)


def _tag_text(value: str) -> str:
    if len(value) > _TAG_VALUE_MAX or not re.fullmatch(r"[\w .:/=+@-]+", value):
        raise invalid(
            "tag", f"must be letters, digits, spaces and any of _.:/=+-@, at most {_TAG_VALUE_MAX}"
        )
    return value


BUCKET_PREFIX_MAX: Final = 63 - len("-checkpoints")
"""S3's limit less the longest of the suffixes."""


def _region(value: str) -> str:
    if partition := ec2.other_partition(value):
        raise invalid(
            "unsupported-partition",
            "must be a region of the partition aws, such as us-east-1",
            "choose one",
            f"is in the partition {partition}, which is not supported",
        )
    if value not in ec2.REGIONS:
        raise invalid(
            "unknown-name",
            "must be an AWS region with EKS, such as us-east-1",
            did_you_mean(value, ec2.REGIONS, "correct it"),
            f"unknown region {shown(value)}",
            show_value=False,
        )
    return value


Region = Annotated[Str, AfterValidator(_region)]
LogDays = Annotated[Int, AfterValidator(_log_days)]
Endpoint = Annotated[
    tuple[Annotated[Cidr, AfterValidator(_public_cidr)], ...],
    BeforeValidator(_endpoint, json_schema_input_type=Literal["private"] | tuple[Str, ...]),
]
"""CIDR blocks that may reach the public endpoint; none where the file says `private`."""
BucketPrefix = Annotated[Str, AfterValidator(_bucket_prefix)]
TagKey = Annotated[Str, AfterValidator(_tag_key)]
TagValue = Annotated[Str, AfterValidator(_tag_text)]
KubernetesVersion = Annotated[
    Str, AfterValidator(matching("kubernetes-version", r"1\.[0-9]{1,3}", "a version such as 1.35"))
]
AccountId = Annotated[
    Str,
    AfterValidator(matching("account-id", r"[0-9]{12}", "12 digits in quotes")),
    BeforeValidator(_quoted_account),
]
role_arn = matching(
    "role-arn",
    r"arn:aws:iam::[0-9]{12}:role/([\w+=,.@-]+/)*[\w+=,.@-]{1,64}",
    "the ARN of a role such as arn:aws:iam::111122223333:role/platform-admin",
)
RoleArn = Annotated[Str, AfterValidator(role_arn)]
VpcId = Annotated[
    Str, AfterValidator(matching("vpc-id", r"vpc-[0-9a-f]{8,17}", "an id such as vpc-0a1b2c3d"))
]
SubnetId = Annotated[
    Str,
    AfterValidator(
        matching("subnet-id", r"subnet-[0-9a-f]{8,17}", "an id such as subnet-0a1b2c3d")
    ),
]
ReservationId = Annotated[
    Str,
    AfterValidator(
        matching(
            "reservation-id",
            r"cr-[0-9a-f]{17}",
            "cr- and 17 hexadecimal digits",
            "copy it from the EC2 console",
        )
    ),
]


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
