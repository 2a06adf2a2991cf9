"""Names of a user's dev pods and home folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from infra.domain import naming

MAX_HOURS: Final = 24
"""Longest dev pod."""
NAME_MAX: Final = 20

TRANSFER: Final = "transfer"
"""Name of the dev pod that copies its user's files."""

ENDING_S: Final = 60
"""After its own time limit a dev pod has this long to end before Kubernetes ends it."""


def lowest(priorities: Mapping[str, int]) -> str:
    """Return the class of dev pods: every run may take their place."""
    return min(priorities, key=lambda name: priorities[name])


def user_key(user: str) -> str:
    """Return a user's part of names: readable, and different for each user."""
    readable = re.sub(r"[^a-z0-9]+", "-", re.split(r"[/:]", user)[-1].partition("@")[0].lower())
    digest = hashlib.sha256(user.encode()).hexdigest()[:6]
    return f"{readable.strip('-')[:NAME_MAX].strip('-') or 'user'}-{digest}"


def job_name(user: str, name: str) -> str:
    return f"{naming.DEV_PREFIX}{user_key(user)}-{name}"


def home(user: str) -> str:
    """Return a user's home folder on the team's volume, relative to its root."""
    return f"home/{user_key(user)}"
