"""The interface to a stack's cloud; infra/sites has one implementation per cloud."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

PodAdditions = Mapping[str, list[dict[str, Any]]]
"""By field: `initContainers` and `volumes` of a pod, `env` and `volumeMounts` of its trainer container."""


class Cloud(Protocol):
    """What objects in the cluster need from the cloud."""

    @property
    def node_services(self) -> tuple[str, ...]:
        """Addresses of services on nodes that pods of runs may reach, such as a credentials agent."""
        ...

    @property
    def pod_additions(self) -> PodAdditions: ...

    def secret_store(self, team: str) -> Mapping[str, Any]:
        """Return the provider of a team's SecretStore, which reads the team's secrets only."""
        ...
