"""Placeholders in the command and environment of a program: `{run_id}`, `{checkpoints}/best`.

A name in braces is a placeholder; other braces, as in JSON, stay as they are. `{{name}}` stands for
the text `{name}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from trainyard.contract import PLACEHOLDERS

_PLACEHOLDER: Final = re.compile(r"\{(\{[a-z][a-z0-9_]*\})\}|\{([a-z][a-z0-9_]*)\}")


def placeholders_in(texts: Iterable[str]) -> list[str]:
    """Return the names in braces, each once, in order."""
    names = [match[2] for text in texts for match in _PLACEHOLDER.finditer(text) if match[2]]
    return list(dict.fromkeys(names))


def unknown_placeholders(texts: Iterable[str]) -> list[str]:
    """Return the names in braces that are not placeholders, each once, in order."""
    return [name for name in placeholders_in(texts) if name not in PLACEHOLDERS]


def expand(text: str, facts: Mapping[str, str]) -> str:
    """Return the text with its placeholders replaced. Raises KeyError with a name without a value."""

    def value(match: re.Match[str]) -> str:
        return facts[match[2]] if match[2] else match[1]

    return _PLACEHOLDER.sub(value, text)
