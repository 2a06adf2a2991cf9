"""Secrets of teams: names, variables and stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.config.errors import ConfigIssue, shown
from infra.config.partial import Check, PartialStack
from infra.config.sections.teams.model import TeamSecretConfig, read_teams
from infra.domain import fabric


def _secrets(stack: PartialStack) -> Iterator[tuple[str, int, TeamSecretConfig]]:
    """Yield each secret's path, the index of its team, and the secret."""
    for number, team in read_teams(stack):
        for index, secret in enumerate(team.secrets):
            yield f"teams[{number}].secrets[{index}]", number, secret


def check_secret_names(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require unique names and variables in a team's secrets."""
    first: dict[tuple[int, str, str], str] = {}
    for place, team, secret in _secrets(stack):
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


def check_secret_stores(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require a store and External Secrets for secrets with a remote key."""
    operators = stack.operators
    fetched = operators is None or operators.get("externalSecrets") is not None
    for place, _, secret in _secrets(stack):
        if secret.store and not secret.remote_key:
            yield ConfigIssue(
                path=f"{place}.store",
                code="store-without-key",
                problem=f"{shown(secret.store)} is set without remoteKey",
                valid="a store requires remoteKey",
                action="add remoteKey, or remove store",
            )
        if secret.remote_key and not secret.store and stack.provider == "existing":
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


def check_network_variables(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject secrets that set NCCL's network variables, which follow from the pool."""
    for number, team in read_teams(stack):
        for place, secret in enumerate(team.secrets):
            for index, key in enumerate(secret.env):
                if fabric.owns_variable(key):
                    yield ConfigIssue(
                        path=f"teams[{number}].secrets[{place}].env[{index}]",
                        code="reserved-variable",
                        problem=f"{shown(key)} is set by the platform",
                        valid="network variables follow from the pool and cannot come from a secret",
                        action="remove it, and describe the network in the pool's fabric",
                    )


CHECKS: Final[tuple[Check, ...]] = (
    check_secret_names,
    check_secret_stores,
    check_network_variables,
)
