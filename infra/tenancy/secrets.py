"""A team's secrets: their names, and where External Secrets gets those that are kept elsewhere.

No value is in any file, in the state or in an argument: a Secret is there already, or a controller in the
cluster writes it from what it reads in a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest, metadata

API: Final = naming.EXTERNAL_SECRETS_API

STORE: Final = "team"
"""Name of the team's own store."""

REFRESH: Final = "1h0m0s"
"""How often a value is read again. A run that has started keeps what it got."""


@dataclass(frozen=True, kw_only=True)
class TeamSecret:
    """One Secret of a team's namespace."""

    name: str
    env: tuple[str, ...]
    """Its keys; each is also the name of the environment variable that a run gets."""
    remote_key: str | None = None
    """The secret in the store that it is made from; None: the Secret is there already."""
    store: str | None = None
    """A ClusterSecretStore of the cluster; None: the team's own store."""


@dataclass(frozen=True, kw_only=True)
class SecretsManager:
    """AWS Secrets Manager, as one team may read it."""

    region: str
    role_arn: str


def store(team: str, source: SecretsManager) -> Manifest:
    """The team's own store. The controller becomes the team's role for it, so that it reads nobody else's."""
    return {
        "apiVersion": API,
        "kind": "SecretStore",
        "metadata": _metadata(team, STORE),
        "spec": {
            "provider": {
                "aws": {
                    "service": "SecretsManager",
                    "region": source.region,
                    "role": source.role_arn,
                }
            }
        },
    }


def external_secret(team: str, secret: TeamSecret) -> Manifest:
    """What makes the Secret: a property of the remote secret per key, of the same name."""
    if secret.store:
        source = {"kind": "ClusterSecretStore", "name": secret.store}
    else:
        source = {"kind": "SecretStore", "name": STORE}
    data: list[dict[str, Any]] = [
        {"secretKey": key, "remoteRef": {"key": secret.remote_key, "property": key}}
        for key in secret.env
    ]
    return {
        "apiVersion": API,
        "kind": "ExternalSecret",
        "metadata": _metadata(team, secret.name),
        "spec": {
            "refreshInterval": REFRESH,
            "secretStoreRef": source,
            # The Secret goes when this goes, and when the remote secret goes.
            "target": {"name": secret.name, "creationPolicy": "Owner", "deletionPolicy": "Delete"},
            "data": data,
        },
    }


def _metadata(team: str, name: str) -> Manifest:
    labels = naming.object_labels("secrets", team)
    return metadata(name, namespace=naming.namespace(team), labels=labels)


def manifests(
    team: str, secrets: tuple[TeamSecret, ...], source: SecretsManager | None
) -> list[Manifest]:
    """What External Secrets works on, the store first; nothing for Secrets that are there already."""
    remote = [secret for secret in secrets if secret.remote_key]
    own = [store(team, source)] if source and any(not s.store for s in remote) else []
    return [*own, *(external_secret(team, secret) for secret in remote)]
