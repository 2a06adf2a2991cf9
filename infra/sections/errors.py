"""Config issues: one line per issue, `PATH: what is wrong; what is valid; what to do`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final

import pydantic
from pydantic_core import PydanticCustomError

_SHOWN_MAX: Final = 60

_KINDS: Final[dict[str, tuple[str, str, str]]] = {
    "int_type": ("wrong-type", "is not a whole number", "must be a whole number without quotes"),
    "float_type": ("wrong-type", "is not a number", "must be a number without quotes"),
    "bool_type": ("wrong-type", "is not a boolean", "must be true or false"),
    "string_type": ("wrong-type", "is not text", "must be text"),
    "string_unicode": ("wrong-type", "is not text", "must be text"),
    "string_too_short": ("empty", "is empty", "must not be empty"),
    "dict_type": ("wrong-type", "is not a mapping", "must be a mapping"),
    "model_attributes_type": ("wrong-type", "is not a mapping", "must be a mapping"),
    "model_type": ("wrong-type", "is not a mapping", "must be a mapping"),
    "tuple_type": ("wrong-type", "is not a list", "must be a list"),
    "too_short": ("too-few", "is too short", "must have at least {min_length} entry"),
    "too_long": ("too-many", "is too long", "must have at most {max_length} entries"),
    "greater_than_equal": ("out-of-range", "is too small", "must be at least {ge:g}"),
    "greater_than": ("out-of-range", "is too small", "must be more than {gt:g}"),
    "less_than_equal": ("out-of-range", "is too large", "must be at most {le:g}"),
    "finite_number": ("out-of-range", "is not finite", "must be a finite number"),
}
"""By pydantic's kind of error: the code, what is wrong with the value, and what is valid."""

_CUSTOM: Final = "text"
"""Context key of an error that `invalid` made."""

_KEY: Final = "[key]"
"""Last element of pydantic's location where a mapping's key is wrong, not its value."""


@dataclass(frozen=True, kw_only=True, order=True)
class ConfigIssue:
    """One issue in a file that people write."""

    path: str
    """Key path such as `nodePools[0].min`, or the name of the file."""
    problem: str
    """What is wrong."""
    valid: str
    """What is valid."""
    action: str
    """What to do."""
    code: str = "invalid"
    """Kind of the issue in kebab case, such as `unknown-key`; stable, unlike the text."""

    def __str__(self) -> str:
        line = f"{self.path}: {self.problem}; {self.valid}; {self.action}"
        return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)


def issue(code: str, path: str, problem: str, valid: str, action: str) -> ConfigIssue:
    """Return an issue, see ConfigIssue."""
    return ConfigIssue(path=path, code=code, problem=problem, valid=valid, action=action)


class ConfigError(Exception):
    """A configuration that cannot be used; its text has one line per issue."""

    def __init__(self, issues: Sequence[ConfigIssue | str]) -> None:
        self.issues = tuple(issues)
        self.lines = tuple(map(str, issues))
        super().__init__("\n".join(self.lines))


def invalid(
    code: str,
    valid: str,
    action: str = "correct it",
    problem: str = "is not valid",
    *,
    show_value: bool = True,
) -> PydanticCustomError:
    """Return the error for a validator to raise; in the message `problem` follows the value."""
    parts = (problem, valid, action, show_value)
    return PydanticCustomError(code, "{text}", {_CUSTOM: parts})


def shown(value: Any) -> str:
    """Return a value as a message shows it: short, one line, strings in quotes."""
    text = repr(value) if isinstance(value, str) else _plain(value)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


def _plain(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"a mapping ({', '.join(str(key) for key in value)})"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    return str(value)


def one_of(names: Iterable[str]) -> str:
    """Return the valid names for a message."""
    return ", ".join(sorted(names)) or "none defined"


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return an action: the nearest known name, else `otherwise`."""
    near = nearest(name, known)
    return f"did you mean {near}?" if near else otherwise


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` probably stands for; None for numbers and versions."""
    if not any(character.isalpha() for character in name):
        return None
    folded = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def join(prefix: str, location: Iterable[str | int]) -> str:
    """Return a path in the notation of messages: names joined by dots, indexes in brackets."""
    path = prefix
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            name = part or "''"
            path += f".{name}" if path else name
    return path


def key_names(model: type[pydantic.BaseModel]) -> list[str]:
    """Return the keys of a section as the file has them."""
    return [f.alias or name for name, f in model.model_fields.items()]


def holder_of(
    model: type[pydantic.BaseModel], location: Sequence[str | int]
) -> tuple[type[pydantic.BaseModel] | None, tuple[str | int, ...]]:
    """Return the nested model that holds the last key of `location`, and the path in the file.

    Where a key has one of several models, pydantic's location includes the tag of the chosen one.
    """
    holder: type[pydantic.BaseModel] | None = model
    choices: list[type[pydantic.BaseModel]] = []
    place: list[str | int] = []
    for part in location:
        if part == _KEY:
            continue
        tagged = next((m for m in choices if part == getattr(m, "TAG", None)), None)
        if tagged and len(choices) > 1:
            holder, choices = tagged, []
            continue
        place.append(part)
        if isinstance(part, int):
            continue
        if choices:
            holder = choices[0]
        fields = {f.alias or n: f for n, f in holder.model_fields.items()} if holder else {}
        choices = _nested(fields[part].annotation) if part in fields else []
    return holder, tuple(place)


def _nested(annotation: Any) -> list[type[pydantic.BaseModel]]:
    """Return the models of a field: of one section, a list, a union or an optional one."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    inner = [getattr(annotation, "__origin__", None), *getattr(annotation, "__args__", ())]
    return [model for part in inner if part for model in _nested(part)]


def from_pydantic(
    error: pydantic.ValidationError, model: type[pydantic.BaseModel]
) -> list[ConfigIssue]:
    """Return one issue per error, in the order of the model's fields.

    A misspelt key is one issue: that the intended key is missing is not reported.
    """
    errors: list[dict[str, Any]] = [dict(e) for e in error.errors(include_url=False)]
    meant = {_meant(e, model) for e in errors if e["type"] == "extra_forbidden"}
    inside = {tuple(e["loc"][:depth]) for e in errors for depth in range(len(e["loc"]))}
    # Pydantic counts valid elements only: an invalid one makes the list too short.
    follow_ons: dict[str, set[Any]] = {"missing": {*meant}, "too_short": inside}
    return [
        _translate(e, model) for e in errors if tuple(e["loc"]) not in follow_ons.get(e["type"], ())
    ]


def _meant(error: dict[str, Any], model: type[pydantic.BaseModel]) -> tuple[str | int, ...] | None:
    """Return the location of the key that an unknown one probably stands for."""
    location: tuple[str | int, ...] = error["loc"]
    holder, _ = holder_of(model, location)
    near = nearest(str(location[-1]), key_names(holder)) if holder else None
    return (*location[:-1], near) if near else None


def within(file: str, issues: Iterable[ConfigIssue]) -> list[ConfigIssue]:
    """Return the issues with the file's name before their paths."""
    return [replace(one, path=f"{file}: {one.path}" if one.path else file) for one in issues]


def _translate(error: dict[str, Any], model: type[pydantic.BaseModel]) -> ConfigIssue:
    location: tuple[str | int, ...] = error["loc"]
    holder, place = holder_of(model, location)
    path, kind, value = join("", place), str(error["type"]), error["input"]
    context: dict[str, Any] = error.get("ctx", {})
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_tag(error, path, tag_names(holder, location[-1]))
    if kind == "extra_forbidden" and holder:
        known = key_names(holder)
        return ConfigIssue(
            path=path,
            code="unknown-key",
            problem="unknown key",
            valid=f"must be one of {one_of(known)}",
            action=did_you_mean(str(location[-1]), known, "remove it"),
        )
    if kind == "missing":
        valid = f"must be {_described(holder, location)}"
        return ConfigIssue(path=path, code=kind, problem=kind, valid=valid, action="add it")
    if _CUSTOM in context:
        problem, valid, action, show_value = context[_CUSTOM]
        problem = f"{shown(value)} {problem}" if show_value else problem
        return ConfigIssue(path=path, code=kind, problem=problem, valid=valid, action=action)
    if "expected" in context:
        return _not_a_choice(path, value, context["expected"])
    code, predicate, valid = _KINDS.get(kind, ("invalid", "is not valid", str(error["msg"])))
    return ConfigIssue(
        path=path,
        code=code,
        problem=f"{shown(value)} {predicate}",
        valid=valid.format(**context),
        action=_action(kind, value),
    )


def _action(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float | date):
        return "put it in quotes"
    return "correct it"


def quoted_choices(expected: str) -> list[str | int]:
    """Return the values that pydantic lists as `'spot' or 'on-demand'`, or `125, 250 or 500`."""
    listed = [name.strip() for name in expected.replace(" or ", ", ").split(",")]
    return [name.strip("'") if name.startswith("'") else int(name) for name in listed]


def _not_a_choice(path: str, value: Any, expected: str) -> ConfigIssue:
    """Return the issue of a value that is not one of the few that pydantic quotes."""
    names = [str(choice) for choice in quoted_choices(expected)]
    if isinstance(value, str):
        action = did_you_mean(value, names, "choose one of them")
    else:
        action = "put it in quotes" if str(value) in names else "choose one of them"
    return ConfigIssue(
        path=path,
        code="unknown-value",
        problem=f"{shown(value)} is not a valid value",
        valid=f"must be {expected if len(names) == 1 else 'one of ' + ', '.join(names)}",
        action=action,
    )


def tag_names(holder: type[pydantic.BaseModel] | None, key: str | int) -> list[str]:
    """Return the values of the key that selects one of several shapes of a section."""
    fields = {f.alias or n: f for n, f in holder.model_fields.items()} if holder else {}
    found = _nested(fields[str(key)].annotation) if key in fields else []
    return [m.TAG for m in found if hasattr(m, "TAG")]


def _wrong_tag(error: dict[str, Any], path: str, tags: Sequence[str]) -> ConfigIssue:
    """Return the issue of a key that selects the shape of a section: missing, or unknown."""
    ctx = error["ctx"]
    given = ctx.get("tag")
    return ConfigIssue(
        path=f"{path}.{ctx['discriminator'].strip(chr(39))}",
        code="missing" if given is None else "unknown-value",
        problem="missing" if given is None else f"{shown(given)} is not a valid value",
        valid=f"must be one of {one_of(tags)}",
        action="add it" if given is None else did_you_mean(given, tags, "choose one of them"),
    )


def _described(holder: type[pydantic.BaseModel] | None, location: Sequence[str | int]) -> str:
    if holder:
        for name, field in holder.model_fields.items():
            if location[-1] in (name, field.alias) and field.description:
                return field.description
    return "a value"
