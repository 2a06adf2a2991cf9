"""The AWS provider that every resource of the stack goes through, given explicitly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pulumi_aws.provider as aws

from infra.domain import naming

STACK_TAG: Final = f"{naming.DOMAIN}/stack"
CLUSTER_TAG: Final = f"{naming.DOMAIN}/cluster"


@dataclass(frozen=True, kw_only=True)
class ProviderArgs:
    """Where the stack is, and what everything in it is marked with."""

    region: str
    account: str
    """12 digits; an update with credentials of another account is refused."""
    stack: str
    cluster: str
    tags: Mapping[str, str]
    """The user's own; they cannot replace the platform's."""


def default_tags(args: ProviderArgs) -> dict[str, str]:
    """Tags of every resource of the stack; launch templates pass them on to what EC2 launches later."""
    return {
        **args.tags,
        naming.PART_OF: naming.PROJECT,
        naming.MANAGED_BY: "pulumi",
        STACK_TAG: args.stack,
        CLUSTER_TAG: args.cluster,
    }


def aws_provider(name: str, args: ProviderArgs) -> aws.Provider:
    """The provider; components take it in `providers`."""
    return aws.Provider(
        name,
        region=args.region,
        allowed_account_ids=[args.account],
        default_tags=aws.ProviderDefaultTagsArgs(tags=default_tags(args)),
    )
