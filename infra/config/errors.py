"""A user's mistake: one line that names the place, what is there, what may be there, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pydantic

_SHOWN_MAX: Final = 60

_ALLOWED: Final = {
    "int_type": "a whole number, without quotes",
    "float_type": "a number, without quotes",
    "bool_type": "true or false",
    "string_type": "text (put it in quotes if it looks like a number)",
    "string_unicode": "text",
    "string_too_short": "text that is not empty",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "finite_number": "a finite number",
}
"""What pydantic's kinds of errors mean to somebody who writes YAML."""

_KEY: Final = "[key]"
"""Ends pydantic's location of a mapping's key that is wrong itself."""


@dataclass(frozen=True, kw_only=True, order=True)
class ConfigIssue:
    """One mistake in a file that people write."""

    path: str
    """Key path such as `nodePools[0].min`, or the name of the file."""
    problem: str
    """What is wrong."""
    valid: str
    """What is valid."""
    action: str
    """What to do."""
    code: str = "invalid"
    """Kind of the mistake in kebab case, such as `unknown-key`; stable, unlike the text."""

    def __str__(self) -> str:
        line = f"{self.path}: {self.problem}; {self.valid}; {self.action}"
        return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)


class ConfigError(Exception):
    """A configuration that cannot be used; its text has one line per issue."""

    def __init__(self, issues: Sequence[ConfigIssue | str]) -> None:
        self.issues = tuple(issues)
        self.lines = tuple(map(str, issues))
        super().__init__("\n".join(self.lines))


def shown(value: Any) -> str:
    """A value as a message shows it: short, one line, strings in quotes."""
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
        return f"a list of {len(value)}"
    return str(value)


def one_of(names: Iterable[str]) -> str:
    """The allowed names, for a message."""
    return ", ".join(sorted(names)) or "none, for there is none"


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """A remedy: the nearest known name, else `otherwise`."""
    near = nearest(name, known)
    return f"did you mean {near}?" if near else otherwise


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` probably stands for."""
    folded = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def join(prefix: str, location: Iterable[str | int]) -> str:
    """A path in the notation of the messages: names by dots, indexes in brackets."""
    path = prefix
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            name = part or "''"
            path += f".{name}" if path else name
    return path


def _keys(model: type[pydantic.BaseModel]) -> list[str]:
    return [f.alias or name for name, f in model.model_fields.items()]


def _place(
    model: type[pydantic.BaseModel], location: Sequence[str | int]
) -> tuple[type[pydantic.BaseModel] | None, tuple[str | int, ...]]:
    """The nested model that holds the key at the end of `location`, and the place in the file.

    Where a key has one of several models, pydantic's location has the tag of the chosen one, too.
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
    """Models of a field that may be a list of them, one of several, or nothing."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    inner = [getattr(annotation, "__origin__", None), *getattr(annotation, "__args__", ())]
    return [model for part in inner if part for model in _nested(part)]


def from_pydantic(
    error: pydantic.ValidationError, model: type[pydantic.BaseModel]
) -> list[ConfigIssue]:
    """One mistake per error, in the order of the file's model.

    A misspelt key is one mistake, though what it stands for is then missing, too.
    """
    errors: list[dict[str, Any]] = [dict(e) for e in error.errors(include_url=False)]
    meant = {_meant(e, model) for e in errors if e["type"] == "extra_forbidden"}
    inside = {tuple(e["loc"][:depth]) for e in errors for depth in range(len(e["loc"]))}
    # Pydantic counts the sound elements of a list: one that is wrong leaves it too short.
    untrue: dict[str, set[Any]] = {"missing": {*meant}, "too_short": inside}
    return [
        _translate(e, model) for e in errors if tuple(e["loc"]) not in untrue.get(e["type"], ())
    ]


def _meant(error: dict[str, Any], model: type[pydantic.BaseModel]) -> tuple[str | int, ...] | None:
    """The location of the key that an unknown one probably stands for."""
    location: tuple[str | int, ...] = error["loc"]
    holder, _ = _place(model, location)
    near = nearest(str(location[-1]), _keys(holder)) if holder else None
    return (*location[:-1], near) if near else None


def within(file: str, mistakes: Iterable[ConfigIssue]) -> list[ConfigIssue]:
    """The same mistakes, their places in a file of this name."""
    return [replace(m, path=f"{file}: {m.path}" if m.path else file) for m in mistakes]


def _translate(error: dict[str, Any], model: type[pydantic.BaseModel]) -> ConfigIssue:
    location: tuple[str | int, ...] = error["loc"]
    holder, place = _place(model, location)
    path = join("", place)
    kind: str = error["type"]
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_tag(error, path, _tags(holder, location[-1]))
    if kind == "extra_forbidden" and holder:
        known = _keys(holder)
        return ConfigIssue(
            path=path,
            problem="got an unknown key",
            valid=f"allowed {one_of(known)}",
            action=did_you_mean(str(location[-1]), known, "remove it"),
        )
    if kind == "missing":
        return ConfigIssue(
            path=path,
            problem="got nothing",
            valid=f"allowed {_described(holder, location)}",
            action="add it",
        )
    if kind == "value_error":
        cause = error["ctx"]["error"]
        allowed, _, remedy = str(cause).partition("; ")
        return ConfigIssue(
            path=path,
            problem="got " + shown(error["input"]),
            valid=f"allowed {allowed}",
            action=remedy or "change it",
        )
    allowed = _ALLOWED.get(kind, error["msg"].removeprefix("Input should be "))
    allowed = allowed.format(**error.get("ctx", {}))
    remedy = _nearest_choice(error["input"], error.get("ctx", {}).get("expected"))
    return ConfigIssue(
        path=path,
        problem="got " + shown(error["input"]),
        valid=f"allowed {allowed}",
        action=remedy,
    )


def _nearest_choice(given: Any, expected: str | None) -> str:
    """A remedy where pydantic expects one of a few quoted names."""
    if not expected:
        return "change it"
    names = [name.strip("' ") for name in expected.replace(" or ", ", ").split(",")]
    if not isinstance(given, str):
        return "put it in quotes" if str(given) in names else "choose one of them"
    return did_you_mean(given, names, "choose one of them")


def _tags(holder: type[pydantic.BaseModel] | None, key: str | int) -> list[str]:
    """Values of the key that decides between several shapes of a section."""
    fields = {f.alias or n: f for n, f in holder.model_fields.items()} if holder else {}
    found = _nested(fields[str(key)].annotation) if key in fields else []
    return [m.TAG for m in found if hasattr(m, "TAG")]


def _wrong_tag(error: dict[str, Any], path: str, tags: Sequence[str]) -> ConfigIssue:
    """The key that decides between several shapes of a section is missing, or has no such value."""
    ctx = error["ctx"]
    given = ctx.get("tag")
    return ConfigIssue(
        path=f"{path}.{ctx['discriminator'].strip(chr(39))}",
        problem=f"got {shown(given)}",
        valid=f"allowed {one_of(tags)}",
        action="add it" if given is None else did_you_mean(given, tags, "choose one of them"),
    )


def _described(holder: type[pydantic.BaseModel] | None, location: Sequence[str | int]) -> str:
    if holder:
        for name, field in holder.model_fields.items():
            if location[-1] in (name, field.alias) and field.description:
                return field.description
    return "a value"
