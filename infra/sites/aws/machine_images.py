"""Machine images of nodes: one release of EKS's Amazon Linux 2023 for managed groups and Karpenter.

Pinned: otherwise nodes of one gang could have different drivers. Managed groups name a release with the patch
version of Kubernetes. Source: "Release version" in CHANGELOG.md of github.com/awslabs/amazon-eks-ami.
"""

from __future__ import annotations

from typing import Final

DATE: Final = "20260714"

_PATCH: Final = {"1.34": "1.34.9", "1.35": "1.35.6", "1.36": "1.36.2"}


def release(kubernetes: str) -> str:
    """Return the release of a minor version such as 1.35. Raises KeyError for one without a release."""
    return f"{_PATCH[kubernetes]}-{DATE}"
