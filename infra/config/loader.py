"""Read a stack file, or the engine's values, into a StackConfig; raise every issue at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pulumi
import pydantic
import yaml
from pulumi.runtime import config as engine_config

from infra.config import rules
from infra.config.model import StackConfig
from infra.config.plaintext_secrets import secrets_in
from infra.domain import naming
from infra.sections.errors import ConfigError, ConfigIssue, from_pydantic, one_of

_STACK_FILE_KEYS: Final = frozenset(
    {"config", "environment", "encryptionsalt", "encryptedkey", "secretsprovider"}
)
_DEPTH_MAX: Final = 100
"""Lists and mappings inside of each other; deeper ones exhaust the parser's stack."""


class _StrictComposer(yaml.composer.Composer):
    """YAML with unique keys and bounded nesting; the types are those of JSON, and dates.

    Without it the last of two equal keys would win silently. Keys merged by `<<` may be overridden.
    """

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        """Compose one node. Raises ConstructorError below `_DEPTH_MAX` levels."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            mark = self.peek_event().start_mark  # type: ignore[attr-defined]
            problem = f"more than {_DEPTH_MAX} nested lists or mappings"
            raise yaml.constructor.ConstructorError(None, None, problem, mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping. Raises ConstructorError for a key that is present twice."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key.value!r}", key.start_mark
                )
            seen.add((key.tag, key.value))
        return node


class _StrictLoader(_StrictComposer, yaml.SafeLoader):
    """With PyYAML's own parser."""


_StrictLoader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag not in [f"tag:yaml.org,2002:{kind}" for kind in ("set", "omap", "pairs", "binary")]
}


class _FastLoader(_StrictComposer, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """With the parser of PyYAML's C library, where it is there."""

    def __init__(self, stream: str) -> None:
        getattr(yaml, "CSafeLoader", yaml.SafeLoader).__init__(self, stream)
        self.anchors: dict[str, yaml.Node] = {}


_FastLoader.yaml_constructors = _StrictLoader.yaml_constructors


def _documents(text: str) -> list[Any]:
    """Return every document of a text. Raises YAMLError and ValueError."""
    try:
        return list(yaml.load_all(text, _FastLoader))
    except (yaml.YAMLError, ValueError):
        # Mistakes are described in the words of one parser.
        return list(yaml.load_all(text, _StrictLoader))


def read_yaml(path: Path, shown_as: str) -> list[Any]:
    """Return every document of a YAML file. Raises ConfigError with one issue if it is unreadable."""
    try:
        documents = _documents(path.read_text(encoding="utf-8"))
        json.dumps(documents, default=str, skipkeys=True)
        return documents
    except FileNotFoundError:
        code, problem, action = "file-not-found", "no such file", "check the name"
    except OSError as error:
        problem = (error.strerror or "not readable").lower()
        code, action = "unreadable-file", "check the file"
    except UnicodeDecodeError:
        code, problem, action = "not-utf-8", "not encoded as UTF-8", "save it as UTF-8"
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or "unreadable text"
        code, problem, action = "yaml", f"YAML error{where}: {what}", "correct that line"
    except ValueError as error:
        # A date or a number out of range, or an alias inside of what it stands for.
        cause = str(error).partition(";")[0]
        code, problem, action = "yaml", f"unreadable value ({cause})", "correct it"
    issue = ConfigIssue(
        path=shown_as, code=code, problem=problem, valid="must be a YAML file", action=action
    )
    raise ConfigError([issue])


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
