"""Read a stack file, or the engine's values, into a StackConfig; raise every issue at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pulumi
import pydantic
from pulumi.runtime import config as engine_config

from infra.config import rules
from infra.config.model import StackConfig
from infra.domain import naming
from infra.sections.errors import ConfigError, ConfigIssue, from_pydantic, one_of
from infra.sections.plaintext_secrets import secrets_in
from infra.sections.yaml_files import read_yaml

_STACK_FILE_KEYS: Final = frozenset(
    {"config", "environment", "encryptionsalt", "encryptedkey", "secretsprovider"}
)


def stack_values(path: Path) -> dict[str, Any]:
    """Return the project's configuration in a stack file, without its namespace.

    Raises ConfigError if it is not a stack file.
    """
    documents = read_yaml(path, path.name)
    content = documents[0] if len(documents) == 1 else None
    config = content.get("config") if isinstance(content, dict) else None
    foreign = content.keys() - _STACK_FILE_KEYS if isinstance(content, dict) else set()
    if isinstance(config, dict):
        _each_key_once(config)
    own = _own_keys(config) if isinstance(config, dict) else {}
    if own and not foreign:
        return own
    issue = ConfigIssue(
        path=path.name,
        code="not-a-stack-file",
        problem=f"has {one_of(map(str, foreign))}" if foreign else "no configuration",
        valid=f"must be a stack file: `config:` with keys such as {naming.PROJECT}:cluster",
        action="name a stack file, or start from Pulumi.local.yaml",
    )
    raise ConfigError([issue])


def _each_key_once(config: Mapping[str, Any]) -> None:
    """Reject a key that is present with and without the namespace. Raises ConfigError."""
    bare = {str(key) for key in config if ":" not in str(key)}
    twice = [key for key in sorted(bare) if f"{naming.PROJECT}:{key}" in config]
    if twice:
        raise ConfigError(
            [
                ConfigIssue(
                    path=key,
                    code="duplicate",
                    problem=f"set twice, as {key} and as {naming.PROJECT}:{key}",
                    valid="keys must be unique",
                    action="remove one of them",
                )
                for key in twice
            ]
        )


def _own_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of this project's namespace, which may also go unnamed; others are not ours to judge."""
    values = {}
    for key, value in config.items():
        namespace, _, name = str(key).rpartition(":")
        if namespace in ("", naming.PROJECT):
            values[name] = value
    return values


def engine_values() -> dict[str, Any]:
    """The configuration that the engine gives the running program."""
    # pulumi.Config reads one known key; unknown ones must be found too.
    keys = {*engine_config.CONFIG.get(), *engine_config.get_config_env()}
    config = pulumi.Config(naming.PROJECT)
    values = {}
    for name in sorted(_own_keys(dict.fromkeys(keys))):
        raw = config.get(name)
        if raw is not None:
            values[name] = _decoded(raw)
    return values


def _decoded(raw: str) -> Any:
    """The engine hands objects and lists over as JSON, scalars as they are."""
    if raw[:1] not in "{[":
        return raw
    try:
        return json.loads(raw)
    except json.JSONDecodeError:
        return raw


def parse(values: Mapping[str, Any]) -> StackConfig:
    """Check each value by itself, then all of them together. Raises ConfigError with every issue."""
    issues = list(secrets_in(values, ""))
    try:
        stack = StackConfig.read(dict(values))
    except pydantic.ValidationError as error:
        raise ConfigError([*from_pydantic(error, StackConfig), *issues]) from None
    issues = [*rules.check(stack), *issues]
    if issues:
        raise ConfigError(issues)
    return stack
