"""What rules are made of: resources in, violations out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

_SHOWN_CHARS: Final = 100
_SCALES: Final = {"k": 1e3, "M": 1e6}
"""Kubernetes gives a quantity of "1000" back as "1k"."""


class Unknown(Enum):
    """A value that only the deployment can tell, such as the output of another resource."""

    VALUE = "known only after the update"


UNKNOWN: Final = Unknown.VALUE


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource as the engine knows it."""

    type: str
    """Pulumi type token, such as `kubernetes:batch/v1:Job`."""
    props: Mapping[str, Any]
    """Plain data; numbers without a fraction are int; what is not known yet is UNKNOWN."""
    urn: str = ""
    protected: bool = False
    """The resource option `protect`."""
    references: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Per property: URNs of the resources whose outputs it uses. Stack rules only: the engine
    does not tell the others."""


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One mistake, in the words its reader needs."""

    path: str
    """Where in the resource, such as `spec.template.spec.containers[0].image`."""
    got: str
    allowed: str
    remedy: str
    urn: str = ""
    """The resource at fault; empty: the one being checked."""

    def __str__(self) -> str:
        return f"{self.path}: got {self.got}; allowed {self.allowed}; {self.remedy}"

    def at(self, urn: str) -> Violation:
        """The same mistake, of the resource with this URN."""
        return replace(self, urn=urn)


Config = Mapping[str, Any]
"""Properties of one rule, from the policy configuration."""
Schema = Mapping[str, Mapping[str, Any]]
"""JSON schema per property. Each states its `default`, so every property reaches the check."""


Check = Callable[[Resource, Config], Iterable[Violation]]
PropertyChecks = Mapping[str, Callable[[Mapping[str, Any]], Iterable[Violation]]]
"""By type token, what is wrong with the properties of such a resource."""


def check_by_type(checks: PropertyChecks) -> Check:
    """Build a check that dispatches on the resource type and ignores other types."""

    def check(resource: Resource, _: Config) -> Iterable[Violation]:
        check_properties = checks.get(resource.type)
        return check_properties(resource.props) if check_properties else ()

    return check


@dataclass(frozen=True, kw_only=True)
class ResourceRule:
    """A rule that one resource alone can break; it is checked before the resource is touched."""

    name: str
    description: str
    check: Check
    schema: Schema = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StackRule:
    """A rule about resources together; it sees the state that the preview or update ends in."""

    name: str
    description: str
    check: Callable[[Sequence[Resource], Config], Iterable[Violation]]
    schema: Schema = field(default_factory=dict)


Rule = ResourceRule | StackRule


def defaults(schema: Schema) -> dict[str, Any]:
    """The configuration of a rule that nobody configured."""
    return {key: value["default"] for key, value in schema.items()}


def merge_inputs(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A resource's properties: outputs, and inputs in the place of those that are not known yet."""
    known = {key: value for key, value in outputs.items() if value is not UNKNOWN}
    return {**outputs, **inputs, **known}


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def elements(value: Any) -> Sequence[Any]:
    """`value` if it is a list, else an empty one."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def dig(value: Any, *keys: str) -> Any:
    """The value at a path of keys; None where there is none, UNKNOWN where it is not known yet."""
    for key in keys:
        if value is UNKNOWN:
            return UNKNOWN
        value = mapping(value).get(key)
    return value


def number(value: Any) -> float | None:
    """A number, or a text that is one; None for all else, so for what is not known yet."""
    if isinstance(value, str):
        scale = _SCALES.get(value[-1:], 1)
        try:
            return float(value[:-1] if scale > 1 else value) * scale
        except ValueError:
            return None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def is_true(value: Any) -> bool:
    """Some providers take true, others "true"; what is not known yet counts, too."""
    return value in (True, "true", UNKNOWN)


def show(value: Any) -> str:
    """`value` as short text for a message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
