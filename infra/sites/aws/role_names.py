"""Names of IAM roles of teams; plain, so that objects in the cluster can name a role before it exists."""

from __future__ import annotations

import hashlib
from typing import Final

ROLE_NAME_MAX: Final = 64
"""IAM's limit."""


def role_name(cluster: str, team: str, of: str = "team") -> str:
    """CLUSTER-OF-TEAM; cut, with a hash of the whole, where it would be too long for IAM."""
    whole = f"{cluster}-{of}-{team}"
    if len(whole) <= ROLE_NAME_MAX:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: ROLE_NAME_MAX - len(digest) - 1]}-{digest}"
