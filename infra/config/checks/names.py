"""Names that must be unique."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue, shown


def _duplicates(section: str, names: Sequence[tuple[int, str]]) -> Iterator[ConfigIssue]:
    first: dict[str, int] = {}
    for index, name in names:
        if name in first:
            yield ConfigIssue(
                path=f"{section}[{index}].name",
                code="duplicate",
                problem=f"{shown(name)} is already used by {section}[{first[name]}]",
                valid="names must be unique",
                action="rename one of them",
            )
        first.setdefault(name, index)


def check_unique_names(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require unique names of pools and of teams."""
    yield from _duplicates("nodePools", [(i, p.name) for i, p in parts.pools])
    yield from _duplicates("teams", [(i, t.name) for i, t in parts.teams])
