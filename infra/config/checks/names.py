"""Names that must be unique."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.config.checks.parts import Parts
from infra.config.mistakes import Mistake, shown


def _duplicates(section: str, names: Sequence[tuple[int, str]]) -> Iterator[Mistake]:
    first: dict[str, int] = {}
    for index, name in names:
        if name in first:
            yield Mistake(
                path=f"{section}[{index}].name",
                got=shown(name),
                allowed=f"a name of its own ({section}[{first[name]}] has this one)",
                remedy="rename one of them",
            )
        first.setdefault(name, index)


def unique_names(parts: Parts) -> Iterator[Mistake]:
    """Pools and teams have names of their own."""
    yield from _duplicates("nodePools", [(i, p.name) for i, p in parts.pools])
    yield from _duplicates("teams", [(i, t.name) for i, t in parts.teams])
