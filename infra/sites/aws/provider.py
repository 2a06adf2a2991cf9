"""The explicit AWS provider of every resource of the stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws.provider as aws

from infra.domain import naming

STACK_TAG: Final = f"{naming.DOMAIN}/stack"
CLUSTER_TAG: Final = f"{naming.DOMAIN}/cluster"


@dataclass(frozen=True, kw_only=True)
class ProviderArgs:
    """Account and region of the stack, and tags of all its resources."""

    region: str
    account: str
    """12 digits; updates with credentials of another account fail."""
    stack: str
    cluster: str
    tags: Mapping[str, str]
    """The user's tags; they cannot replace the platform's."""


def default_tags(args: ProviderArgs) -> dict[str, str]:
    """Return tags of every resource of the stack; launch templates apply them to what EC2 launches later."""
    return {
        **args.tags,
        naming.PART_OF: naming.PROJECT,
        naming.MANAGED_BY: "pulumi",
        STACK_TAG: args.stack,
        CLUSTER_TAG: args.cluster,
    }


def aws_provider(
    name: str, args: ProviderArgs, parent: pulumi.Resource | None = None
) -> aws.Provider:
    """Create the provider; components take it in `providers`."""
    return aws.Provider(
        name,
        region=args.region,
        allowed_account_ids=[args.account],
        default_tags=aws.ProviderDefaultTagsArgs(tags=default_tags(args)),
        opts=pulumi.ResourceOptions(parent=parent),
    )
