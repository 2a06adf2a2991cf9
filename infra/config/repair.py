"""Replace values that cannot be read by those probably meant, so that one invalid value is one issue.

Checks run on the repaired stack: a misspelt `nodes: manged` is reported once, and not again by every
check that looks at the pool's nodes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pydantic

from infra.config.errors import holder_of, key_names, nearest, quoted_choices, tag_names

Values = dict[str, Any]

_DROPPED: Final = object()
"""Candidate that leaves the key out: its default, or a neutral value, stands in."""


def repaired(
    values: Mapping[str, Any],
    error: pydantic.ValidationError,
    model: type[pydantic.BaseModel],
    count_issues: Callable[[Values], int],
) -> Values:
    """Return a copy of the values without the errors that have an obvious remedy.

    Among several possible values the one with the fewest issues of its own wins.
    """
    result: Values = copy.deepcopy(dict(values))
    for one in error.errors(include_url=False):
        holder, place = holder_of(model, one["loc"])
        parent = _at(result, place[:-1])
        if not place or not isinstance(parent, dict | list):
            continue
        key: Any = place[-1]
        if one["type"] == "extra_forbidden" and holder and isinstance(parent, dict):
            _rename(parent, key, key_names(holder))
            continue
        if one["type"] in ("union_tag_invalid", "union_tag_not_found"):
            parent, key = parent[key], str(one["ctx"]["discriminator"]).strip("'")
            found = _similar(parent.setdefault(key, None), tag_names(holder, place[-1]))
        else:
            found = _candidates(dict(one))
        _replace(result, parent, key, found, count_issues)
    return result


def _at(value: Any, place: Sequence[str | int]) -> Any:
    for part in place:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _rename(parent: dict[Any, Any], key: Any, known: Sequence[str]) -> None:
    near = nearest(str(key), known)
    if near and near not in parent and key in parent:
        parent[near] = parent.pop(key)


def _similar(value: Any, choices: Sequence[Any]) -> list[Any]:
    """Return the choices, the one that a value probably stands for first."""
    texts = {str(choice): choice for choice in choices}
    if str(value) in texts:
        return [texts[str(value)]]
    near = nearest(str(value), texts)
    return [texts[near], *choices] if near else list(choices)


def _candidates(error: dict[str, Any]) -> list[Any]:
    """Return the values that may have been meant; none where only a person can know."""
    context, value, kind = error.get("ctx", {}), error["input"], error["type"]
    if "expected" in context:
        return _similar(value, quoted_choices(context["expected"]))
    for bound in ("ge", "le"):
        if kind in ("greater_than_equal", "less_than_equal") and bound in context:
            return [context[bound], _DROPPED]
    if kind == "int_type" and isinstance(value, str) and value.strip().isdecimal():
        return [int(value)]
    if kind == "bool_type" and str(value).lower() in ("true", "yes", "on", "false", "no", "off"):
        return [str(value).lower() in ("true", "yes", "on")]
    if kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    return []


def _replace(
    whole: Values,
    parent: Any,
    key: Any,
    found: Sequence[Any],
    count_issues: Callable[[Values], int],
) -> None:
    """Put the value with the fewest issues into `parent`, a part of `whole`."""
    try:
        parent[key]
    except (KeyError, IndexError):
        return
    counts = []
    for index, value in enumerate(found):
        _put(parent, key, value)
        counts.append((count_issues(whole) if len(found) > 1 else 0, index))
    if counts:
        _put(parent, key, found[min(counts)[1]])


def _put(parent: Any, key: Any, value: Any) -> None:
    if value is not _DROPPED:
        parent[key] = value
    elif isinstance(parent, dict):
        parent.pop(key, None)
