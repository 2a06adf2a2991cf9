"""Read YAML files: keys once, bounded nesting, and one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

from infra.sections.errors import ConfigError, ConfigIssue

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
