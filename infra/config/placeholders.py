"""Values of the committed stack files that stand for the user's own: updates refuse them, previews do not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from infra.sections.errors import ConfigIssue

ACCOUNT: Final = "111122223333"
"""AWS uses it in its own documentation; it belongs to no customer."""
IMAGE_DIGEST: Final = "2f6a1c0e9b7d43586f0a1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69"

_KINDS: Final[Mapping[str, re.Pattern[str]]] = {
    "account": re.compile(rf"(?<!\d){ACCOUNT}(?!\d)"),
    "id": re.compile(r"\b[a-z]+-0123456789abcdef0\b|\b01234567-89ab-cdef-0123-456789abcdef\b"),
    "image digest": re.compile(IMAGE_DIGEST),
    # RFC 2606 reserves the first.
    "domain": re.compile(r"(?<![\w-])(?:example\.(?:com|net|org)|training\.acme\.dev)(?![\w-])"),
    # RFC 5737 reserves these three blocks for documentation.
    "address block": re.compile(
        r"(?<![\d.])(?:192\.0\.2|198\.51\.100|203\.0\.113)\.\d{1,3}(?:/\d+)?\b"
    ),
    "repository": re.compile(r"\bgithub\.com/acme/training\b"),
    "name": re.compile(r"^acme[-/]train(?:ing|yard)\b"),
}
"""What a placeholder is, by its kind."""


def find_placeholders(values: Mapping[str, Any]) -> list[ConfigIssue]:
    """Return one issue per value of a stack file that contains a placeholder, in the file's order.

    Issues name the placeholder, not the whole value, which may be secret.
    """
    return [
        ConfigIssue(
            path=path,
            code="placeholder",
            problem=f"{found[0]!r} is a placeholder",
            valid=f"must be the {kind} of this stack before `pulumi up`",
            action="replace it; previews accept it",
        )
        for path, text in _texts(values, "")
        for kind, pattern in _KINDS.items()
        if (found := pattern.search(text))
    ]


def warning(found: Sequence[ConfigIssue]) -> str:
    lines = [f"  {one.path}: {one.problem}" for one in found]
    return "\n".join(
        ["`pulumi up` would refuse these values of the stack file; replace them first:", *lines]
    )


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield every scalar as text with its path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{index}]")
    elif isinstance(value, str | int):
        yield path, str(value)
