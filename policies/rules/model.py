"""Data model of the rules: resources in, violations out."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from infra.domain import quantity

_SHOWN_CHARS: Final = 100


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


@dataclass(frozen=True)
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


Config = Mapping[str, Any]
"""Properties of one rule, from the policy configuration."""
Schema = Mapping[str, Mapping[str, Any]]
"""JSON schema per property, each with a `default`, so that checks always receive every property."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    name: str
    description: str
    schema: Schema = field(default_factory=dict)

    @property
    def defaults(self) -> dict[str, Any]:
        return {key: value["default"] for key, value in self.schema.items()}

    def unknown_properties(self, config: Config) -> Iterable[Violation]:
        """Yield configured properties that the rule does not have, which the engine's schema check accepts."""
        for key in sorted(set(config) - set(self.schema)):
            close = difflib.get_close_matches(key, self.schema, n=1)
            yield Violation(
                f"policy configuration: {self.name}.{key}",
                "an unknown property",
                ", ".join(["enforcementLevel", *sorted(self.schema)]),
                f"did you mean {close[0]}?" if close else "remove it",
            )


@dataclass(frozen=True, kw_only=True)
class ResourceRule(Rule):
    """A rule on a single resource, checked before the resource is changed."""

    check: Callable[[Resource, Config], Iterable[Violation]]


@dataclass(frozen=True, kw_only=True)
class StackRule(Rule):
    """A rule on several resources, checked on the resulting state of a preview or update."""

    check: Callable[[Sequence[Resource], Config], Iterable[Violation]]


Check = Callable[[Resource, Config], Iterable[Violation]]
PropertyChecks = Mapping[str, Callable[[Mapping[str, Any]], Iterable[Violation]]]
"""By type token, a function that yields the violations in a resource's properties."""


def check_by_type(checks: PropertyChecks) -> Check:
    """Build a check that dispatches on the resource type and ignores other types."""

    def check(resource: Resource, _: Config) -> Iterable[Violation]:
        check_properties = checks.get(resource.type)
        return check_properties(resource.props) if check_properties else ()

    return check


def merge_inputs(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a resource's properties: outputs, with inputs in place of unknown ones."""
    known = {key: value for key, value in outputs.items() if value is not UNKNOWN}
    return {**outputs, **inputs, **known}


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def elements(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def strings(value: Any) -> tuple[str, ...]:
    """Return the known strings of a list."""
    return tuple(entry for entry in elements(value) if isinstance(entry, str))


def dig(value: Any, *keys: str) -> Any:
    """Return the value at a path of keys; None if absent, UNKNOWN if not known yet."""
    for key in keys:
        if value is UNKNOWN:
            return UNKNOWN
        value = mapping(value).get(key)
    return value


def number(value: Any) -> float | None:
    """Return a number, or a quantity such as `1k`; None for anything else, including UNKNOWN."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(quantity.parse(value))
    except ValueError:
        return None


def is_true(value: Any) -> bool:
    """Whether `value` is true, "true" or unknown, since providers accept both forms."""
    return value in (True, "true", UNKNOWN)


def show(value: Any) -> str:
    """Format `value` as short text for a message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
