"""The cluster of a stack, existing or created: what its in-cluster parts need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.domain.storage import SharedStorage


@dataclass(frozen=True, kw_only=True)
class ClusterTarget:
    kubernetes: k8s.Provider
    ready: Sequence[pulumi.Resource]
    """Resources that those objects depend on: nodes, storage, add-ons."""
    storage: SharedStorage
    kubeconfig: pulumi.Input[str] | None = None
    """Content, as JSON, of a cluster that the stack creates."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """The stack output `site`."""
