"""Invokes of the `aws` provider that the program makes, answered without an account; all else is refused.

The engine accepts no unknown values in a response: each field has a plausible value or is omitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.toolchain.tools import AWS_PLUGIN_VERSION

Answer = dict[str, Any]

NO_ACCOUNT: Final = "000000000000"
"""Account id for providers without allowed accounts."""


class NotSupportedError(Exception):
    """The text is one line with cause and remedy."""


def remedy(package: str, version: str) -> str:
    """Return the remedy: how to run with the official plugin of a package."""
    return (
        f"run `pulumi preview` with an account and the official plugin (pulumi plugin install resource {package}"
        f" {version})"
    )


@dataclass(frozen=True)
class Place:
    account: str
    region: str


def answer(token: str, arguments: Mapping[str, Any], place: Place) -> Answer:
    """Return the response to an invoke. Raises NotSupportedError: this stand-in has no answer."""
    account, region = place.account, arguments.get("region") or place.region
    match token:
        case "aws:index/getCallerIdentity:getCallerIdentity":
            apart = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
            partition = next((apart[one] for one in apart if region.startswith(one)), "aws")
            arn = f"arn:{partition}:sts::{account}:assumed-role/preview/preview"
            return {"id": account, "accountId": account, "arn": arn, "userId": "PREVIEW"}
        case "aws:eks/getClusters:getClusters":
            # A preview as if the stack were new.
            return {"id": region, "region": region, "names": []}
    raise NotSupportedError(
        f"the preview stand-in of aws has no answer for the invoke {token};"
        f" {remedy('aws', AWS_PLUGIN_VERSION)}"
    )
