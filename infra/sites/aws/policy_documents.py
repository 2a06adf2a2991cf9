"""Parts that IAM policy documents share. Plain data: importing this does not load pulumi_aws."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

Document = dict[str, Any]
Statement = Mapping[str, Any]

_VERSION: Final = "2012-10-17"
"""Version of the policy language; the older one has no variables."""

KEY_USE: Final = (
    "kms:Encrypt",
    "kms:Decrypt",
    "kms:ReEncrypt*",
    "kms:GenerateDataKey*",
    "kms:DescribeKey",
)
"""Actions on a KMS key of those who read and write what it encrypts."""

AWS_POLICIES: Final = "arn:aws:iam::aws:policy"
"""Prefix of the ARNs of AWS' own policies."""

ROLE_NAME_MAX: Final = 64
"""IAM's limit."""


def role_name(cluster: str, team: str, of: str = "team") -> str:
    """Return CLUSTER-OF-TEAM, shortened with a hash of the whole where IAM's limit requires it.

    The name is plain, so that objects in the cluster can name a role before it exists.
    """
    whole = f"{cluster}-{of}-{team}"
    if len(whole) <= ROLE_NAME_MAX:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: ROLE_NAME_MAX - len(digest) - 1]}-{digest}"


def document(*statements: Statement) -> Document:
    return {"Version": _VERSION, "Statement": list(statements)}
