"""Planned resources of a component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.aws_preview.properties import reveal

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


def after_cluster(
    key: str, token: str, name: str, inputs: Tree, package: str = "aws"
) -> PlannedResource:
    """Return a resource that depends on the cluster."""
    return PlannedResource(
        key=key, type=token, name=name, inputs=inputs, package=package, after=("cluster",)
    )


def tags(inputs: Mapping[str, Any], own: str) -> Tree:
    """Return the tags of a resource: its own and the component's."""
    found: Tree = {}
    for key in (own, "tags"):
        given = reveal(inputs.get(key))
        found |= given if isinstance(given, dict) else {}
    return found
