"""Invokes of the `aws` provider that the program makes, answered without an account; all else is refused.

The engine accepts no unknown values in a response: each field has a plausible value or is omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
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

    @property
    def partition(self) -> str:
        if self.region.startswith("cn-"):
            return "aws-cn"
        return "aws-us-gov" if self.region.startswith("us-gov-") else "aws"


def answer(token: str, arguments: Mapping[str, Any], place: Place) -> Answer:
    """Return the response to an invoke. Raises NotSupportedError: this stand-in has no answer."""
    look_up = _ANSWERS.get(token)
    if look_up is None:
        raise NotSupportedError(
            f"the preview stand-in of aws has no answer for the invoke {token};"
            f" {remedy('aws', AWS_PLUGIN_VERSION)}"
        )
    named = arguments.get("region")
    return look_up(arguments, Place(place.account, named) if isinstance(named, str) else place)


def _caller_identity(_arguments: Mapping[str, Any], place: Place) -> Answer:
    arn = f"arn:{place.partition}:sts::{place.account}:assumed-role/preview/preview"
    return {"id": place.account, "accountId": place.account, "arn": arn, "userId": "PREVIEW"}


def _clusters(_arguments: Mapping[str, Any], place: Place) -> Answer:
    # A preview as if the stack were new.
    return {"id": place.region, "region": place.region, "names": []}


_ANSWERS: Final[Mapping[str, Callable[[Mapping[str, Any], Place], Answer]]] = MappingProxyType(
    {
        "aws:index/getCallerIdentity:getCallerIdentity": _caller_identity,
        "aws:eks/getClusters:getClusters": _clusters,
    }
)
