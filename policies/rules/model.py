"""Data model of the rules: resources in, violations out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

_SHOWN_CHARS: Final = 100
_SCALES: Final = {"k": 1e3, "M": 1e6}
"""Kubernetes returns a quantity of "1000" as "1k"."""


class Unknown(Enum):
    """A value known only after the update, such as the output of another resource."""

    VALUE = "known only after the update"


UNKNOWN: Final = Unknown.VALUE


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource as the engine passes it."""

    type: str
    """Pulumi type token, such as `kubernetes:batch/v1:Job`."""
    props: Mapping[str, Any]
    """Plain data; whole numbers are int; unknown values are UNKNOWN."""
    urn: str = ""
    protected: bool = False
    """The resource option `protect`."""
    references: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Per property: URNs of the resources whose outputs it uses. Stack rules only: the engine does not
    pass them to resource rules."""


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One violation: path, what is wrong, what is valid, what to do."""

    path: str
    """Path in the resource, such as `spec.template.spec.containers[0].image`."""
    got: str
    expected: str
    remedy: str
    urn: str = ""
    """The violating resource; empty: the one being checked."""

    def __str__(self) -> str:
        return f"{self.path}: got {self.got}; expected {self.expected}; {self.remedy}"

    def at(self, urn: str) -> Violation:
        """Return the same violation for the resource with this URN."""
        return replace(self, urn=urn)


Config = Mapping[str, Any]
"""Properties of one rule, from the policy configuration."""
Schema = Mapping[str, Mapping[str, Any]]
"""JSON schema per property, each with a `default`, so that checks always receive every property."""


Check = Callable[[Resource, Config], Iterable[Violation]]
PropertyChecks = Mapping[str, Callable[[Mapping[str, Any]], Iterable[Violation]]]
"""By type token, a function that yields the violations in a resource's properties."""


def check_by_type(checks: PropertyChecks) -> Check:
    """Build a check that dispatches on the resource type and ignores other types."""

    def check(resource: Resource, _: Config) -> Iterable[Violation]:
        check_properties = checks.get(resource.type)
        return check_properties(resource.props) if check_properties else ()

    return check


@dataclass(frozen=True, kw_only=True)
class ResourceRule:
    """A rule on a single resource, checked before the resource is changed."""

    name: str
    description: str
    check: Check
    schema: Schema = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StackRule:
    """A rule on several resources, checked on the resulting state of a preview or update."""

    name: str
    description: str
    check: Callable[[Sequence[Resource], Config], Iterable[Violation]]
    schema: Schema = field(default_factory=dict)


Rule = ResourceRule | StackRule


def defaults(schema: Schema) -> dict[str, Any]:
    """Return a rule's default configuration."""
    return {key: value["default"] for key, value in schema.items()}


def merge_inputs(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a resource's properties: outputs, with inputs in place of unknown ones."""
    known = {key: value for key, value in outputs.items() if value is not UNKNOWN}
    return {**outputs, **inputs, **known}


def mapping(value: Any) -> Mapping[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def elements(value: Any) -> Sequence[Any]:
    """Return `value` if it is a list, else an empty one."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def dig(value: Any, *keys: str) -> Any:
    """Return the value at a path of keys; None if absent, UNKNOWN if not known yet."""
    for key in keys:
        if value is UNKNOWN:
            return UNKNOWN
        value = mapping(value).get(key)
    return value


def number(value: Any) -> float | None:
    """Convert a number or numeric text to float; None for anything else, including UNKNOWN."""
    if isinstance(value, str):
        scale = _SCALES.get(value[-1:], 1)
        try:
            return float(value[:-1] if scale > 1 else value) * scale
        except ValueError:
            return None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def is_true(value: Any) -> bool:
    """Whether `value` is true, "true" or unknown, since providers accept both forms."""
    return value in (True, "true", UNKNOWN)


def show(value: Any) -> str:
    """Format `value` as short text for a message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
