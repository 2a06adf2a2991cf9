"""Secrets of teams: each has a name of its own, and somebody to fetch it."""

from __future__ import annotations

from collections.abc import Iterator

from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue, shown
from infra.config.secrets_model import TeamSecretConfig


def _secrets(parts: PartialStack) -> Iterator[tuple[str, int, TeamSecretConfig]]:
    """Every secret with its place, and the number of its team."""
    for number, team in parts.teams:
        for index, secret in enumerate(team.secrets):
            yield f"teams[{number}].secrets[{index}]", number, secret


def check_secret_names(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require unique names and variables in a team's secrets."""
    first: dict[tuple[int, str, str], str] = {}
    for place, team, secret in _secrets(parts):
        given = [("name", secret.name, f"{place}.name")]
        given += [("env", key, f"{place}.env[{i}]") for i, key in enumerate(secret.env)]
        for kind, name, path in given:
            other = first.setdefault((team, kind, name), path)
            if other != path:
                yield ConfigIssue(
                    path=path,
                    code="duplicate",
                    problem=f"{shown(name)} is already used by {other}",
                    valid="names and variables of a team's secrets must be unique",
                    action="rename one of them",
                )


def check_secret_stores(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require a store and External Secrets for secrets with a remote key."""
    operators = parts.operators
    fetched = operators is None or operators.get("externalSecrets") is not None
    for place, _, secret in _secrets(parts):
        if secret.store and not secret.remote_key:
            yield ConfigIssue(
                path=f"{place}.store",
                code="store-without-key",
                problem=f"{shown(secret.store)} is set without remoteKey",
                valid="a store requires remoteKey",
                action="add remoteKey, or remove store",
            )
        if secret.remote_key and not secret.store and parts.provider == "existing":
            yield ConfigIssue(
                path=f"{place}.store",
                code="missing",
                problem="missing",
                valid="remoteKey requires a ClusterSecretStore of the cluster (only EKS "
                "has a default)",
                action="add it, or create the Secret manually and remove remoteKey",
            )
        if secret.remote_key and not fetched:
            yield ConfigIssue(
                path=f"{place}.remoteKey",
                code="operator-required",
                problem="operators.externalSecrets is missing",
                valid="remoteKey requires operators.externalSecrets",
                action="add externalSecrets: {provided: false} to operators",
            )
