"""A team's secrets: their names, and the stores from which External Secrets reads them.

No value is in a file, in the state or in an argument: a Secret exists already, or a controller in the cluster
writes it from a store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest, in_team
from infra.sections.teams import TeamSecretConfig

API: Final = naming.EXTERNAL_SECRETS_API

STORE: Final = "team"
"""Name of the team's own store."""

REFRESH: Final = "1h0m0s"
"""Refresh interval. A started run keeps the value that it got."""


def store(team: str, provider: Mapping[str, Any]) -> Manifest:
    """Return the team's SecretStore; its provider is limited to the team's own secrets."""
    spec = {"provider": dict(provider)}
    return in_team(f"{API}/SecretStore", STORE, "secrets", team, spec=spec)


def external_secret(team: str, secret: TeamSecretConfig) -> Manifest:
    """Return the ExternalSecret: each key is the property of the same name of the remote secret."""
    if secret.store:
        source = {"kind": "ClusterSecretStore", "name": secret.store}
    else:
        source = {"kind": "SecretStore", "name": STORE}
    data: list[dict[str, Any]] = [
        {"secretKey": key, "remoteRef": {"key": secret.remote_key, "property": key}}
        for key in secret.env
    ]
    return in_team(
        f"{API}/ExternalSecret",
        secret.name,
        "secrets",
        team,
        spec={
            "refreshInterval": REFRESH,
            "secretStoreRef": source,
            # The Secret is deleted with this object, and stays without the remote secret: only so does the
            # controller report a secret that is not in the store. With Delete it reports success.
            "target": {"name": secret.name, "creationPolicy": "Owner", "deletionPolicy": "Retain"},
            "data": data,
        },
    )


def manifests(
    team: str, secrets: Sequence[TeamSecretConfig], provider: Mapping[str, Any] | None
) -> list[Manifest]:
    """Return External Secrets' objects, the store first; none for Secrets that exist already."""
    remote = [secret for secret in secrets if secret.remote_key]
    own = [store(team, provider)] if provider and any(not s.store for s in remote) else []
    return [*own, *(external_secret(team, secret) for secret in remote)]
