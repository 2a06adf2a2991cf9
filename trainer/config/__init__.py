"""The configuration of a run: `load` reads a file strictly, or reports every mistake at once, one line each.

settings.py has each setting with its bounds, default, unit and meaning, rules.py what must hold between them.
Launchers and checks import this package: it loads no torch.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from trainer.config import rules
from trainer.config.settings import TrainerConfig
from trainer.config_errors import ConfigError, ConfigIssue, issue, within


def load(file: Path, assignments: Sequence[str] = ()) -> TrainerConfig:
    """Read a YAML file and apply `key=value` assignments (dotted keys, YAML values) on top.

    Raises ConfigError with every issue, also for a file that cannot be read.
    """
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _unreadable(file, f"cannot be read: {reason}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise _unreadable(file, " ".join(str(error).split())) from None
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise _unreadable(file, f"contains a {type(values).__name__}")
    return parse(merge_assignments(values, assignments), str(file))


def parse(values: Mapping[str, Any], source: str = "config") -> TrainerConfig:
    """Return the configuration in `values`.

    Raises ConfigError with every value of a wrong type or out of bounds, else with every broken rule.
    """
    try:
        config = TrainerConfig.model_validate(values)
    except ValidationError as error:
        found = [_translated(dict(one)) for one in error.errors(include_url=False)]
        raise ConfigError(within(source, found)) from None
    if found := list(rules.check(config)):
        raise ConfigError(within(source, found))
    return config


def world_issues(config: TrainerConfig, world_size: int) -> list[ConfigIssue]:
    """Return what is wrong with the configuration for this many ranks; of one group in an elastic run."""
    return list(rules.check_world(config, world_size))


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Return the scalars inside of a configuration's values by dotted path; items of lists by their number."""
    if isinstance(value, Mapping):
        inner = [(f"{path}.{key}" if path else str(key), one) for key, one in value.items()]
    elif isinstance(value, list | tuple):
        inner = [(f"{path}[{number}]", one) for number, one in enumerate(value)]
    else:
        return {path: value}
    return {key: scalar for at, one in inner for key, scalar in flatten(one, at).items()}


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
            problem = " ".join(str(error).split())
            valid = "must be KEY=VALUE with a YAML value, as in optimizer.learning_rate=0.001"
            issues.append(issue(f"--set {assignment}", problem, valid, code="invalid-assignment"))
    if issues:
        raise ConfigError(issues)
    return merged


def _put(target: dict[str, Any], parts: list[str], value: Any) -> None:
    for part in parts[:-1]:
        inner = target.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{part} is a scalar without settings inside")
        target = inner
    target[parts[-1]] = value


def _unreadable(file: Path, problem: str) -> ConfigError:
    valid = "must be a YAML file with a mapping of settings"
    return ConfigError([issue(str(file), problem, valid, code="invalid-file")])


_TYPES: Final = {
    "int_type": "a whole number",
    "float_type": "a finite number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "model_type": "a mapping",
    "tuple_type": "a list",
}
"""What a value must be, by pydantic's kind of error."""
_BOUNDS: Final = {
    "greater_than": ("must be above {gt:g}", "raise it"),
    "greater_than_equal": ("must be {ge:g} or above", "raise it"),
    "less_than": ("must be below {lt:g}", "lower it"),
    "less_than_equal": ("must be {le:g} or below", "lower it"),
}
"""What is valid and what to do, by pydantic's kind of error."""


def _translated(error: dict[str, Any]) -> ConfigIssue:
    """Return one of pydantic's errors as an issue."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    path = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in error["loc"])[1:]
    name = str(error["loc"][-1]) if error["loc"] else ""
    if kind == "extra_forbidden":
        known = list(_section(error["loc"]).model_fields)
        return _choice(path, "unknown key", name, known, "remove it", "unknown-key")
    if kind == "missing":
        return rules.missing(path)
    if kind == "literal_error":
        known = [one.strip("'") for one in context["expected"].replace(" or ", ", ").split(", ")]
        problem = f"{_shown(value)} is not a valid value"
        return _choice(path, problem, str(value), known, "choose one of them", "unknown-value")
    if kind in _BOUNDS:
        valid, action = _BOUNDS[kind]
        if value == 0 and name.startswith("every_"):
            action = "use null to switch it off"
        return rules.out_of_range(path, _shown(value), valid.format(**context), action)
    if kind == "value_error":
        valid = str(context["error"])
        return issue(path, f"{_shown(value)} is too large", valid, "lower it", "out-of-range")
    wanted = _TYPES.get(kind, error["msg"])
    problem, valid = f"{_shown(value)} is not {wanted}", f"must be {wanted}"
    return issue(path or "config", problem, valid, "change it", "wrong-type")


def _section(location: tuple[str | int, ...]) -> type[BaseModel]:
    """Return the section that holds the last key of a location."""
    section: type[BaseModel] = TrainerConfig
    for part in location[:-1]:
        if isinstance(part, str):
            kind: Any = section.model_fields[part].annotation
            section = kind if isinstance(kind, type) else kind.__args__[0]
    return section


def _choice(
    path: str, problem: str, given: str, known: list[str], otherwise: str, code: str
) -> ConfigIssue:
    close = difflib.get_close_matches(given, known, n=1)
    action = f"did you mean {close[0]}?" if close else otherwise
    return issue(path, problem, f"must be one of {', '.join(known)}", action, code)


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
