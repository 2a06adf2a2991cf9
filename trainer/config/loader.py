"""Strict reading of nested settings into frozen dataclasses: unknown keys are rejected, nothing is coerced.

All issues are collected before any is raised. Standard library and yaml only: see
docs/adr/01-stacks-and-configuration.md.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, Union

import yaml

from trainer.config_errors import ConfigError, ConfigIssue

T = TypeVar("T")

_BITS: Final = 64
"""Of whole numbers in torch and in files, with their sign."""
_NAMES: Final = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "text",
}


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """Return types by field: to resolve them takes longer than everything else here."""
    return typing.get_type_hints(kind)


def build(kind: type[T], values: Any, issues: list[ConfigIssue], path: str = "") -> T | None:
    """Return an instance of the dataclass `kind`, and append each issue of `values` to `issues`.

    Defaults replace what is wrong, so that the rest can be checked too; None when a value without a default is
    missing or wrong.
    """
    if not isinstance(values, Mapping):
        issues.append(_wrong_type(path or "config", values, "a mapping"))
        return None
    hints = _hints(typing.cast("typing.Hashable", kind))
    issues += [_unknown(path, str(key), list(hints)) for key in values if key not in hints]
    arguments: dict[str, Any] = {}
    complete = True
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        where = _join(path, field.name)
        required = field.default is field.default_factory is dataclasses.MISSING
        if field.name in values:
            before = len(issues)
            value = _convert(hints[field.name], values[field.name], issues, where)
            if len(issues) == before or dataclasses.is_dataclass(value):
                arguments[field.name] = value
        elif required:
            issues.append(missing(where))
        complete = complete and (field.name in arguments or not required)
    return kind(**arguments) if complete else None


def merge_assignments(values: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Return a copy of `values` with each `dotted.key=YAML` assigned.

    Raises ConfigError for an assignment of another form, or to a key inside of a scalar.
    """
    merged: dict[str, Any] = copy.deepcopy(dict(values))
    issues = []
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        try:
            if not (key and equals):
                raise ValueError("is not an assignment")
            _put(merged, key.split("."), yaml.safe_load(text))
        except (ValueError, yaml.YAMLError, RecursionError) as error:
            issues.append(
                ConfigIssue(
                    path=f"--set {assignment}",
                    problem=" ".join(str(error).split()),
                    valid="must be KEY=VALUE with a YAML value, as in optimizer.learning_rate=0.001",
                    action="correct it",
                    code="invalid-assignment",
                )
            )
    if issues:
        raise ConfigError(issues)
    return merged


def missing(path: str, valid: str = "must be set, it has no default") -> ConfigIssue:
    """Return the issue of a required setting that is absent."""
    return ConfigIssue(path=path, problem="missing", valid=valid, action="add it", code="missing")


def _put(target: dict[str, Any], parts: list[str], value: Any) -> None:
    for part in parts[:-1]:
        inner = target.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{part} is a scalar without settings inside")
        target = inner
    target[parts[-1]] = value


def _convert(hint: Any, value: Any, issues: list[ConfigIssue], path: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value, issues, path)
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in options:
            issues.append(_unknown_value(path, value, [str(option) for option in options]))
        return value
    if origin is tuple:
        return _items(options[0], value, issues, path)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in options:
            return None
        hint = next(option for option in options if option is not type(None))
    return _scalar(hint, value, issues, path)


def _items(hint: Any, values: Any, issues: list[ConfigIssue], path: str) -> Any:
    """A tuple of what a list holds."""
    if not isinstance(values, list | tuple):
        issues.append(_wrong_type(path, values, "a list"))
        return ()
    found = [_convert(hint, value, issues, f"{path}[{n}]") for n, value in enumerate(values)]
    return tuple(item for item in found if item is not None)


def _scalar(hint: Any, value: Any, issues: list[ConfigIssue], path: str) -> Any:
    if hint is float and isinstance(value, str):
        value = _exponent_float(value)
    if hint in (int, float) and isinstance(value, int) and value.bit_length() >= _BITS:
        issues.append(
            ConfigIssue(
                path=path,
                problem=f"{_show(value)} is too large",
                valid=f"must be a number of less than {_BITS} bits",
                action="lower it",
                code="out-of-range",
            )
        )
        return value
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if value - value == 0:  # neither infinite nor NaN
            return float(value)
    elif isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    issues.append(_wrong_type(path, value, _NAMES[hint]))
    return value


def _exponent_float(text: str) -> Any:
    """YAML 1.1 reads `1e-3` as text; a number is meant."""
    try:
        return float(text) if "e" in text.lower() else text
    except ValueError:
        return text


def _wrong_type(path: str, value: Any, kind: str) -> ConfigIssue:
    return ConfigIssue(
        path=path,
        problem=f"{_show(value)} is not {kind}",
        valid=f"must be {kind}",
        action="change it",
        code="wrong-type",
    )


def _unknown(path: str, key: str, known: list[str]) -> ConfigIssue:
    return ConfigIssue(
        path=_join(path, key),
        problem="unknown key",
        valid=f"must be one of {', '.join(known)}",
        action=_nearest(key, known, "remove it"),
        code="unknown-key",
    )


def _unknown_value(path: str, value: Any, known: list[str]) -> ConfigIssue:
    return ConfigIssue(
        path=path,
        problem=f"{_show(value)} is not a valid value",
        valid=f"must be one of {', '.join(known)}",
        action=_nearest(str(value), known, "choose one of them"),
        code="unknown-value",
    )


def _nearest(given: str, known: list[str], otherwise: str) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f"did you mean {close[0]}?" if close else otherwise


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _show(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
