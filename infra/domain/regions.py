"""AWS regions and the names of their availability zones.

GovCloud and China are other partitions with other ARNs, which this project does not support.
"""

from __future__ import annotations

import re
from typing import Final

KNOWN: Final = (
    "af-south-1",
    "ap-east-1",
    "ap-east-2",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-6",
    "ap-southeast-7",
    "ca-central-1",
    "ca-west-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "mx-central-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
)
"""Regions of AWS's public partition with EKS, from botocore 1.44."""

_ZONE: Final = re.compile(r"([a-z]+(?:-[a-z]+)+-\d)[a-z]")


def region_of_zone(zone: str) -> str | None:
    """Return the region of an availability zone such as us-east-1a; None for any other name."""
    match = _ZONE.fullmatch(zone)
    return match[1] if match and match[1] in KNOWN else None
