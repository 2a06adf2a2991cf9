"""Invokes of the `aws` provider, answered from data without an account.

The engine accepts no unknown values in a response: each field has a plausible value or is omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from sandbox.aws_preview.errors import NotSupportedError, remedy
from sandbox.toolchain.tools import AWS_PLUGIN_VERSION

Answer = dict[str, Any]

NO_ACCOUNT: Final = "000000000000"
"""Account id for providers without allowed accounts."""

_ZONES: Final[Mapping[str, str]] = MappingProxyType(
    {"us-east-1": "abcdef", "us-west-2": "abcd", "ap-northeast-1": "acd", "ca-central-1": "abd"}
)
"""Zone letters of regions whose zones are not a, b, c."""


@dataclass(frozen=True)
class Place:
    """Account and region of a provider."""

    account: str
    region: str

    @property
    def partition(self) -> str:
        """Partition of the region, as in ARNs."""
        if self.region.startswith("cn-"):
            return "aws-cn"
        return "aws-us-gov" if self.region.startswith("us-gov-") else "aws"

    @property
    def dns_suffix(self) -> str:
        """Domain of the partition's services."""
        return "amazonaws.com.cn" if self.partition == "aws-cn" else "amazonaws.com"


def answer(token: str, arguments: Mapping[str, Any], place: Place) -> Answer:
    """Return the response to an invoke.

    Raises:
        NotSupportedError: this stand-in has no answer.
    """
    look_up = _ANSWERS.get(token)
    if look_up is None:
        raise NotSupportedError(
            f"the preview stand-in of aws has no answer for the invoke {token};"
            f" {remedy('aws', AWS_PLUGIN_VERSION)}"
        )
    named = arguments.get("region")
    return look_up(arguments, Place(place.account, named) if isinstance(named, str) else place)


def _availability_zones(_arguments: Mapping[str, Any], place: Place) -> Answer:
    letters = _ZONES.get(place.region, "abc")
    names = [f"{place.region}{letter}" for letter in letters]
    return {"id": place.region, "region": place.region, "names": names}


def _caller_identity(_arguments: Mapping[str, Any], place: Place) -> Answer:
    arn = f"arn:{place.partition}:sts::{place.account}:assumed-role/preview/preview"
    return {"id": place.account, "accountId": place.account, "arn": arn, "userId": "PREVIEW"}


def _region(_arguments: Mapping[str, Any], place: Place) -> Answer:
    endpoint = f"ec2.{place.region}.{place.dns_suffix}"
    return {
        "id": place.region,
        "name": place.region,
        "region": place.region,
        "endpoint": endpoint,
        "description": place.region,
    }


def _partition(_arguments: Mapping[str, Any], place: Place) -> Answer:
    reverse = ".".join(reversed(place.dns_suffix.split(".")))
    return {
        "id": place.partition,
        "partition": place.partition,
        "dnsSuffix": place.dns_suffix,
        "reverseDnsPrefix": reverse,
    }


def _clusters(_arguments: Mapping[str, Any], place: Place) -> Answer:
    # A preview as if the stack were new.
    return {"id": place.region, "region": place.region, "names": []}


_ANSWERS: Final[Mapping[str, Callable[[Mapping[str, Any], Place], Answer]]] = MappingProxyType(
    {
        "aws:index/getAvailabilityZones:getAvailabilityZones": _availability_zones,
        "aws:index/getCallerIdentity:getCallerIdentity": _caller_identity,
        "aws:index/getRegion:getRegion": _region,
        "aws:index/getPartition:getPartition": _partition,
        "aws:eks/getClusters:getClusters": _clusters,
    }
)
