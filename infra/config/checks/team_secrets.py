"""Secrets of teams: each has a name of its own, and somebody to fetch it."""

from __future__ import annotations

from collections.abc import Iterator

from infra.config.checks.parts import Parts
from infra.config.mistakes import Mistake, shown
from infra.config.secrets_model import TeamSecretConfig


def _secrets(parts: Parts) -> Iterator[tuple[str, int, TeamSecretConfig]]:
    """Every secret with its place, and the number of its team."""
    for number, team in parts.teams:
        for index, secret in enumerate(team.secrets):
            yield f"teams[{number}].secrets[{index}]", number, secret


def names(parts: Parts) -> Iterator[Mistake]:
    """No two secrets of a team have one name, or a variable in common."""
    first: dict[tuple[int, str, str], str] = {}
    for place, team, secret in _secrets(parts):
        given = [("name", secret.name, f"{place}.name")]
        given += [("env", key, f"{place}.env[{i}]") for i, key in enumerate(secret.env)]
        for kind, name, path in given:
            other = first.setdefault((team, kind, name), path)
            if other != path:
                yield Mistake(
                    path=path,
                    got=shown(name),
                    allowed=f"a name of its own ({other} has this one)",
                    remedy="rename one of them",
                )


def stores(parts: Parts) -> Iterator[Mistake]:
    """What is kept in a store has a store, and a controller that reads it."""
    operators = parts.raw.get("operators")
    fetched = isinstance(operators, dict) and operators.get("externalSecrets") is not None
    for place, _, secret in _secrets(parts):
        if secret.store and not secret.remote_key:
            yield Mistake(
                path=f"{place}.store",
                got=shown(secret.store),
                allowed="a store for a secret with a remoteKey",
                remedy="add remoteKey, or remove store",
            )
        if secret.remote_key and not secret.store and parts.provider != "eks":
            yield Mistake(
                path=f"{place}.store",
                got="nothing",
                allowed="a ClusterSecretStore of the cluster, for only EKS has one by itself",
                remedy="name it, or make the Secret by hand and remove remoteKey",
            )
        if secret.remote_key and not fetched:
            yield Mistake(
                path=f"{place}.remoteKey",
                got=shown(secret.remote_key),
                allowed="remote secrets where the operator externalSecrets is",
                remedy="add externalSecrets: {provided: false} to operators",
            )
