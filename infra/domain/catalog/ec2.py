"""Facts of AWS that the catalog's data file lacks: regions, zones, and labels of EC2's instance topology.

GovCloud, China and the sovereign clouds are other partitions, with other ARNs and endpoints: not supported.
"""

from __future__ import annotations

import re
from typing import Final

REGIONS: Final = (
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

_PARTITIONS: Final = {
    "cn-": "aws-cn",
    "eu-isoe-": "aws-iso-e",
    "eusc-": "aws-eusc",
    "us-gov-": "aws-us-gov",
    "us-iso-": "aws-iso",
    "us-isob-": "aws-iso-b",
    "us-isof-": "aws-iso-f",
}
"""Other partitions by the beginning of their regions."""

TOPOLOGY_LABELS: Final = tuple(f"topology.k8s.aws/network-node-layer-{n}" for n in (1, 2, 3))
"""Labels that AWS's cloud controller sets from EC2's instance topology, nearest level last."""

TYPES_WITH_TOPOLOGY: Final = frozenset(
    {
        "g6e.xlarge",
        "g6e.12xlarge",
        "g6e.48xlarge",
        "p3dn.24xlarge",
        "p4d.24xlarge",
        "p4de.24xlarge",
        "p5.48xlarge",
        "p5e.48xlarge",
        "p5en.48xlarge",
        "p6-b200.48xlarge",
        "p6-b300.48xlarge",
        "p6e-gb200.36xlarge",
    }
)
"""Types of the catalog with instance topology (EC2 User Guide, its prerequisites, 2026)."""

_ZONE: Final = re.compile(r"([a-z]+(?:-[a-z]+)+-\d)[a-z]")


def other_partition(region: str) -> str | None:
    """Return the partition of a region outside of AWS's public one; None for other names."""
    return next((name for begin, name in _PARTITIONS.items() if region.startswith(begin)), None)


def region_of_zone(zone: str) -> str | None:
    """Return the region of an availability zone such as us-east-1a; None for any other name."""
    match = _ZONE.fullmatch(zone)
    return match[1] if match and match[1] in REGIONS else None
