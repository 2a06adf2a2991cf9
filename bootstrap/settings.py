"""The file Pulumi.account.yaml: one AWS account and the stacks in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import pydantic
from pydantic import AfterValidator, Field

from infra.config.placeholders import find_placeholders
from infra.domain.catalog import ec2
from infra.sections.aws import AccountId, BucketPrefix
from infra.sections.errors import ConfigError, ConfigIssue, from_pydantic, invalid
from infra.sections.types import DnsLabel, Int, Str, StrictModel, matching

_OWNER_AND_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?/[A-Za-z0-9._-]+"
_BUCKET = r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"
_ECR_PART = r"[a-z0-9]+(?:[._-][a-z0-9]+)*"

GitHubRepository = Annotated[
    Str, AfterValidator(matching("repository", _OWNER_AND_NAME, "OWNER/NAME on GitHub"))
]
Bucket = Annotated[
    Str, AfterValidator(matching("bucket", _BUCKET, "3 to 63 lower-case letters, digits, hyphens"))
]
ImageRepository = Annotated[
    Str,
    AfterValidator(
        matching("repository", rf"{_ECR_PART}(?:/{_ECR_PART})*", "a path such as trainyard/trainer")
    ),
]


def _of_public_partition(region: str) -> str:
    if partition := ec2.other_partition(region):
        raise invalid(
            "unsupported-partition",
            "must be a region of the partition aws, such as us-east-1",
            "choose one",
            f"is in the partition {partition}, which is not supported",
        )
    return region


Region = Annotated[
    Str,
    AfterValidator(matching("region", r"[a-z]{2,4}(-[a-z]+)+-[0-9]", "such as us-east-1")),
    AfterValidator(_of_public_partition),
]
QuotaCode = Annotated[
    Str, AfterValidator(matching("quota", r"L-[0-9A-F]{8}", "a quota's code such as L-417A185B"))
]


class StackSettings(StrictModel):
    """One stack of the account."""

    name: DnsLabel = Field(description="the stack's name, which is its GitHub environment's too")
    """The Pulumi stack; also the name of its environment on GitHub."""
    cluster: DnsLabel = Field(description="the cluster's name")
    """`cluster.name` of the stack file."""
    bucket_prefix: BucketPrefix = Field(description="the prefix of the stack's buckets")
    """`storage.buckets.prefix` of the stack file."""
    region: Region | None = Field(default=None, description="a region")
    """`aws.region` of the stack file; the account's where it is left out."""


class Settings(StrictModel):
    """The whole file."""

    account: AccountId = Field(description="12 digits in quotes")
    region: Region = Field(description="a region")
    """Region of the state, of the image repositories and of the quotas."""
    repository: GitHubRepository = Field(description="OWNER/NAME on GitHub")
    """Only workflows of this repository can take the roles."""
    state_bucket: Bucket = Field(description="a name that no AWS customer has yet")
    """Bucket of Pulumi's state."""
    image_repository: ImageRepository = Field(description="a repository in ECR")
    """Where the workflow `image` pushes the trainer's image."""
    ops_image_repository: ImageRepository = Field(description="another repository in ECR")
    """Where the workflow `ops-image` pushes the image of what runs in the cluster."""
    stacks: tuple[StackSettings, ...] = Field(min_length=1, description="a list of stacks")
    quotas: dict[QuotaCode, Int] = Field(default_factory=dict, description="EC2 quotas by code")
    """Wanted values, in the quota's unit."""
    github_provider: bool = True
    """Create the account's OIDC provider of GitHub; false where it exists already (one per account)."""


def parse(values: Mapping[str, Any], *, placeholders: bool) -> Settings:
    """Check the file's values. Raise ConfigError with every issue; placeholders are valid only if asked for."""
    issues: list[ConfigIssue] = []
    try:
        found = Settings.read(values)
    except pydantic.ValidationError as error:
        issues = from_pydantic(error, Settings)
    else:
        issues = list(_doubles(found))
    if not placeholders:
        issues += find_placeholders(values)
    if issues:
        raise ConfigError(issues)
    return found


def _doubles(settings: Settings) -> Iterator[ConfigIssue]:
    if settings.ops_image_repository == settings.image_repository:
        yield ConfigIssue(
            path="opsImageRepository",
            code="double",
            problem=f"{settings.ops_image_repository} is also imageRepository",
            valid="must be another repository: tags never move",
            action="rename one",
        )
    for key in ("name", "cluster", "bucket_prefix"):
        values = [getattr(stack, key) for stack in settings.stacks]
        for index, value in enumerate(values):
            if value in values[:index]:
                yield ConfigIssue(
                    path=f"stacks[{index}].{StackSettings.model_fields[key].alias}",
                    code="double",
                    problem=f"{value} is also that of stacks[{values.index(value)}]",
                    valid="every stack must have its own",
                    action="rename one",
                )
