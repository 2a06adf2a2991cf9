"""From a stack file, or from the engine, to a StackConfig or to every mistake at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pulumi
import pydantic
import yaml
from pulumi.runtime import config as engine_config

from infra import naming
from infra.config import checks
from infra.config.mistakes import ConfigError, Mistake, did_you_mean, from_pydantic, one_of
from infra.config.model import (
    PoolConfig,
    Section,
    StackConfig,
    StorageConfig,
    TeamConfig,
)

_STACK_FILE_KEYS: Final = frozenset(
    {"config", "environment", "encryptionsalt", "encryptedkey", "secretsprovider"}
)
_LISTS: Final[dict[str, type[Section]]] = {"nodePools": PoolConfig, "teams": TeamConfig}


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key may appear once: the last of two would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, shown_as: str) -> list[Any]:
    """Every document of a YAML file. Raises ConfigError with one line when it cannot be read."""
    try:
        return list(yaml.load_all(path.read_text(encoding="utf-8"), _StrictLoader))
    except FileNotFoundError:
        problem, remedy = "no such file", "check the name"
    except OSError as error:
        problem, remedy = (error.strerror or "an unreadable file").lower(), "check the file"
    except UnicodeDecodeError:
        problem, remedy = "bytes that are not UTF-8", "save it as UTF-8"
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or "unreadable text"
        problem, remedy = f"a YAML error{where}: {what}", "correct that line"
    raise ConfigError([Mistake(path=shown_as, got=problem, allowed="a YAML file", remedy=remedy)])


def stack_values(path: Path) -> dict[str, Any]:
    """The project's configuration in a stack file, without its namespace.

    Raises ConfigError when it is not one.
    """
    documents = read_yaml(path, path.name)
    content = documents[0] if len(documents) == 1 else None
    mistake = Mistake(
        path=path.name,
        got="a file without configuration",
        allowed=f"a stack file: `config:` with keys such as {naming.PROJECT}:cluster",
        remedy="start from Pulumi.local.yaml",
    )
    if not isinstance(content, dict) or not isinstance(content.get("config"), dict):
        raise ConfigError([mistake])
    if unknown := sorted(str(key) for key in content.keys() - _STACK_FILE_KEYS):
        raise ConfigError(
            [
                Mistake(
                    path=f"{path.name}: {key}",
                    got="an unknown key",
                    allowed=one_of(_STACK_FILE_KEYS),
                    remedy=did_you_mean(key, _STACK_FILE_KEYS, "move it under config"),
                )
                for key in unknown
            ]
        )
    return _own_keys(content["config"])


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
    """Check a stack's values. Raises ConfigError with every mistake."""
    mistakes, parts = _parts(values)
    for check in checks.ALL:
        mistakes += check(parts)
    if mistakes:
        raise ConfigError(mistakes)
    return StackConfig.model_validate(dict(values))


def _parts(values: Mapping[str, Any]) -> tuple[list[Mistake], checks.Parts]:
    mistakes: list[Mistake] = []
    try:
        StackConfig.model_validate(dict(values))
    except pydantic.ValidationError as error:
        mistakes = from_pydantic(error, StackConfig)
    lists = {key: _valid_items(values.get(key), model) for key, model in _LISTS.items()}
    pools = [(i, p) for i, p in lists["nodePools"] if isinstance(p, PoolConfig)]
    teams = [(i, t) for i, t in lists["teams"] if isinstance(t, TeamConfig)]
    storage = _valid(values.get("storage"), StorageConfig)
    raw_pools = values.get("nodePools")
    names = (
        {str(p.get("name")) for p in raw_pools if isinstance(p, dict)}
        if isinstance(raw_pools, list)
        else set()
    )
    parts = checks.Parts(
        pools=pools,
        teams=teams,
        storage=storage if isinstance(storage, StorageConfig) else None,
        pool_names=frozenset(names),
        raw=dict(values),
    )
    return mistakes, parts


def _valid_items(value: Any, model: type[Section]) -> list[tuple[int, Section]]:
    if not isinstance(value, list):
        return []
    items = [(index, _valid(item, model)) for index, item in enumerate(value)]
    return [(index, item) for index, item in items if item is not None]


def _valid(value: Any, model: type[Section]) -> Section | None:
    try:
        return model.model_validate(value)
    except pydantic.ValidationError:
        return None


def from_file(path: Path) -> StackConfig:
    """The configuration in a stack file. Raises ConfigError with every mistake."""
    return parse(stack_values(path))


def from_engine() -> StackConfig:
    """The configuration of the running program. Raises ConfigError with every mistake."""
    return parse(engine_values())
