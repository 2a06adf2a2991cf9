"""Evaluate IAM policies, for the part of the language that this project uses.

Unsupported elements raise, so that no document passes because it was not understood.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Document = Mapping[str, Any]

_STATEMENT_KEYS: Final = {
    *("Sid", "Effect", "Principal", "Action", "NotAction", "Resource", "Condition"),
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call. Context keys that a real call would carry must be given."""

    action: str
    resource: str
    account: str | None
    """Account of the caller; None: an anonymous caller, or a service on its own behalf."""
    service: str | None = None
    """The caller, if it is one of AWS's services."""
    context: Mapping[str, str] = field(default_factory=dict)


def allowed(
    request: Request,
    *,
    identity: Sequence[Document] = (),
    resource: Document | None = None,
    owner: str | None = None,
) -> bool:
    """Whether the call goes through.

    `identity` are the caller's policies, `resource` is the policy of what it calls, `owner` that
    one's account. A Deny anywhere wins; across accounts both sides must allow.
    """
    effects = {_effect(one, request, named=False) for one in identity}
    own = _effect(resource, request, named=True) if resource else None
    if "Deny" in effects | {own}:
        return False
    if request.account is not None and request.account != owner:
        return "Allow" in effects and own == "Allow"
    return "Allow" in effects | {own}


def _effect(document: Document, request: Request, *, named: bool) -> str | None:
    """Effect of a document on a call: Deny if one applies, else Allow, else None."""
    found = {
        statement["Effect"]
        for statement in _listed(document["Statement"])
        if _applies(statement, request, named=named)
    }
    if not found <= {"Allow", "Deny"}:
        raise NotImplementedError(f"effects {found}")
    return "Deny" if "Deny" in found else "Allow" if "Allow" in found else None


def _applies(statement: Mapping[str, Any], request: Request, *, named: bool) -> bool:
    if unknown := set(statement) - _STATEMENT_KEYS:
        raise NotImplementedError(f"{sorted(unknown)} in a statement")
    if named != ("Principal" in statement):
        raise ValueError(f"a principal belongs into policies of resources only: {statement}")
    return (
        (not named or _is_principal(statement["Principal"], request))
        and _names_action(statement, request.action)
        # A trust policy is about the role that it is on.
        and any(
            matches(pattern, request.resource)
            for pattern in _listed(statement.get("Resource", "*"))
        )
        and all(
            _condition(operator, key, _listed(values), request.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _names_action(statement: Mapping[str, Any], action: str) -> bool:
    if ("Action" in statement) == ("NotAction" in statement):
        raise ValueError(f"a statement has either Action or NotAction: {statement}")
    patterns = _listed(statement.get("Action", statement.get("NotAction")))
    named = any(matches(pattern.lower(), action.lower()) for pattern in patterns)
    return named == ("Action" in statement)


def _is_principal(principal: Any, request: Request) -> bool:
    # The two ways to write everybody mean the same, those without a name included.
    if principal in ("*", {"AWS": "*"}):
        return True
    if unknown := set(principal) - {"AWS", "Service"}:
        raise NotImplementedError(f"principals {sorted(unknown)}")
    root = f"arn:aws:iam::{request.account}:root"
    return root in _listed(principal.get("AWS", [])) or (
        request.service is not None and request.service in _listed(principal.get("Service", []))
    )


def matches(pattern: str, text: str) -> bool:
    """IAM's wildcards: `*` for any characters, `?` for one; `${...}` is not understood."""
    if "${" in pattern:
        raise NotImplementedError(f"policy variable in {pattern}")
    parts = ({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _matches_arn(pattern: str, text: str) -> bool:
    """Wildcards do not reach across the first five colons."""
    patterns, parts = pattern.split(":", 5), text.split(":", 5)
    return len(patterns) == len(parts) and all(map(matches, patterns, parts))


def _equal(expected: str, got: str) -> bool:
    if "${" in expected:
        raise NotImplementedError(f"policy variable in {expected}")
    return expected == got


def _same_bool(expected: str, got: str) -> bool:
    return expected.lower() == got.lower()


_OPERATORS: Final[Mapping[str, tuple[Callable[[str, str], bool], bool]]] = {
    "StringEquals": (_equal, False),
    "StringNotEquals": (_equal, True),
    "StringLike": (matches, False),
    "ArnLike": (_matches_arn, False),
    "ArnEquals": (_matches_arn, False),
    "Bool": (_same_bool, False),
}
"""How a value is compared, and whether the comparison is negated."""


def _condition(
    operator: str, key: str, expected: Sequence[str], context: Mapping[str, str]
) -> bool:
    if operator == "Null":
        return any(_same_bool(value, str(key not in context)) for value in expected)
    plain = operator.removesuffix("IfExists")
    if plain not in _OPERATORS:
        raise NotImplementedError(f"condition operator {operator}")
    compare, negated = _OPERATORS[plain]
    if key not in context:
        return negated or plain != operator
    return any(compare(value, context[key]) for value in expected) != negated


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
