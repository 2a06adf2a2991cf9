"""Where a stack lives, whichever way it got there: what all its in-cluster parts need to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.domain.storage import SharedStorage


@dataclass(frozen=True, kw_only=True)
class ClusterTarget:
    """A cluster that the platform's objects can be put into."""

    kubernetes: k8s.Provider
    ready: Sequence[pulumi.Resource]
    """What those objects come after, and go before: nodes, storage, add-ons."""
    storage: SharedStorage
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """What the stack output `site` says of it."""
