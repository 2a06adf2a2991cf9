"""A stack file as far as it can be read: what checks work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import pydantic

from infra.config.errors import ConfigIssue, shown
from infra.config.types import StrictModel

UNKNOWN: Final = "unknown"
"""Stands for a name that is missing or invalid: no check reports it."""

UNNAMED: Final = "unnamed-"
"""Prefix of the names of pools and teams whose own are missing or invalid."""

UNKNOWN_ACCOUNT: Final = "000000000000"
"""Stands for an account that is missing or invalid."""

_S = TypeVar("_S", bound=StrictModel)


class PartialStack:
    """The sections of a stack file; a model's NEUTRAL values stand in for invalid fields."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.raw: dict[str, Any] = _text_keys(dict(values))
        self._items: dict[str, Sequence[tuple[int, Any]]] = {}

    @property
    def provider(self) -> str:
        """`existing`, `eks`, or what else the file has."""
        cluster = self.raw.get("cluster")
        return str(cluster.get("provider")) if isinstance(cluster, dict) else UNKNOWN

    @property
    def on_eks(self) -> bool:
        """Whether the stack creates its cluster on EKS."""
        return self.provider == "eks"

    @property
    def operators(self) -> dict[str, Any] | None:
        """The section `operators`; None where it is missing or invalid, which is reported."""
        found = self.raw.get("operators")
        return found if isinstance(found, dict) else None

    def has_operator(self, name: str) -> bool:
        """Return whether the file names this operator."""
        return self.operators is not None and self.operators.get(name) is not None

    def section(self, key: str, model: type[_S]) -> _S | None:
        """Return a section; None if it is missing or beyond repair."""
        return _read(self.raw.get(key), model, {})

    def items(self, key: str, model: type[_S]) -> Sequence[tuple[int, _S]]:
        """Return the items of a section that is a list, each with its index in the file."""
        if key not in self._items:
            raw = self.raw.get(key)
            items = [
                (index, _read(item, model, {"name": f"{UNNAMED}{index}"}))
                for index, item in enumerate(raw if isinstance(raw, list) else ())
            ]
            self._items[key] = [(index, item) for index, item in items if item is not None]
        return self._items[key]


Check = Callable[[PartialStack], Iterator[ConfigIssue]]


def duplicates(section: str, names: Sequence[tuple[int, str]]) -> Iterator[ConfigIssue]:
    """Yield an issue for each name that an earlier item of the section has."""
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


def _text_keys(value: Any) -> Any:
    """Return the value with every key as text; a key of another type is reported already."""
    if isinstance(value, dict):
        return {str(key): _text_keys(inner) for key, inner in value.items()}
    return [_text_keys(inner) for inner in value] if isinstance(value, list) else value


def _read(value: Any, model: type[_S], named: Mapping[str, Any]) -> _S | None:
    """Return the section with neutral values for invalid fields, so that checks see the rest."""
    if not isinstance(value, dict):
        return None
    try:
        return model.model_validate(value)
    except pydantic.ValidationError as error:
        wrong = {one["loc"][0] for one in error.errors() if one["loc"]}
    valid = {key: inner for key, inner in value.items() if key not in wrong}
    neutral = {key: inner for key, inner in {**named, **model.NEUTRAL}.items() if key not in valid}
    try:
        return model.model_validate({**valid, **neutral})
    except pydantic.ValidationError:
        return None
