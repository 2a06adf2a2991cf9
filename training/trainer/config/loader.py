"""Strict reading of nested settings into frozen dataclasses: nothing unknown, nothing coerced.

A mistake is one line: path, got, allowed, remedy. All mistakes are collected before any is raised.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, Union

import yaml

from training.config_errors import ConfigError

T = TypeVar("T")

_BITS: Final = 64
"""Of whole numbers in torch and in files, with their sign."""


def build(kind: type[T], values: Any, mistakes: list[str], path: str = "") -> T | None:
    """An instance of the dataclass `kind`; each thing wrong adds a line to `mistakes`.

    Defaults stand in for what is wrong, so that the rest can be checked too; None when something
    without a default is missing or wrong.
    """
    if not isinstance(values, Mapping):
        mistakes.append(f"{path or 'config'}: got {_show(values)}; allowed a mapping")
        return None
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in hints:
            mistakes.append(f"{_join(path, key)}: unknown{_suggest(str(key), list(hints))}")
    arguments: dict[str, Any] = {}
    complete = True
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        where = _join(path, field.name)
        required = field.default is field.default_factory is dataclasses.MISSING
        if field.name in values:
            before = len(mistakes)
            value = _convert(hints[field.name], values[field.name], mistakes, where)
            if len(mistakes) == before or dataclasses.is_dataclass(value):
                arguments[field.name] = value
        elif required:
            mistakes.append(f"{where}: missing; it has no default")
        complete = complete and (field.name in arguments or not required)
    return kind(**arguments) if complete else None


def merge_assignments(values: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """A copy of `values` with each `dotted.key=YAML` put in its place.

    Raises ConfigError for an assignment that is not of that form or runs into a plain value.
    """
    merged: dict[str, Any] = copy.deepcopy(dict(values))
    mistakes = []
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        try:
            if not (key and equals):
                raise ValueError("allowed KEY=VALUE, as in optimizer.learning_rate=0.001")
            _put(merged, key.split("."), yaml.safe_load(text))
        except (ValueError, yaml.YAMLError) as error:
            mistakes.append(f"--set {assignment}: {' '.join(str(error).split())}")
    if mistakes:
        raise ConfigError(mistakes)
    return merged


def _put(target: dict[str, Any], parts: list[str], value: Any) -> None:
    for part in parts[:-1]:
        inner = target.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{part} is a plain value, it has no settings inside")
        target = inner
    target[parts[-1]] = value


def _convert(hint: Any, value: Any, mistakes: list[str], path: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value, mistakes, path)
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in options:
            allowed = ", ".join(map(str, options))
            mistakes.append(f"{path}: got {_show(value)}; allowed {allowed}")
        return value
    if origin is tuple:
        return _items(options[0], value, mistakes, path)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in options:
            return None
        hint = next(option for option in options if option is not type(None))
    return _scalar(hint, value, mistakes, path)


def _items(hint: Any, values: Any, mistakes: list[str], path: str) -> Any:
    """A tuple of what a list holds."""
    if not isinstance(values, list | tuple):
        mistakes.append(f"{path}: got {_show(values)}; allowed a list")
        return ()
    found = [_convert(hint, value, mistakes, f"{path}[{n}]") for n, value in enumerate(values)]
    return tuple(item for item in found if item is not None)


def _scalar(hint: Any, value: Any, mistakes: list[str], path: str) -> Any:
    if hint is float and isinstance(value, str):
        value = _exponent_float(value)
    if hint in (int, float) and isinstance(value, int) and value.bit_length() >= _BITS:
        mistakes.append(f"{path}: got {_show(value)}; allowed a number of less than {_BITS} bits")
        return value
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if value - value == 0:  # neither infinite nor NaN
            return float(value)
    elif isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    names = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}
    mistakes.append(f"{path}: got {_show(value)}; allowed {names[hint]}")
    return value


def _exponent_float(text: str) -> Any:
    """YAML 1.1 reads `1e-3` as text: people mean the number."""
    try:
        return float(text) if "e" in text.lower() else text
    except ValueError:
        return text


def _suggest(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; allowed {', '.join(known)}"


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
