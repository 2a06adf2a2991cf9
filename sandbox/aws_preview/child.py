"""Planned resources of a component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PlannedResource:
    """One resource. `parent` and `after`: keys of other resources; an empty parent is the component."""

    key: str
    type: str
    name: str
    inputs: Tree
    package: str = "aws"
    parent: str = ""
    after: tuple[str, ...] = ()

    @property
    def custom(self) -> bool:
        """Whether it is a custom resource; else a component."""
        return not self.type.startswith("eks:")
