"""Differences between nested values, by path.

`spec.rules[0].expr` names keys and indexes of the base, `spec.args[2:3]` the items of the base that
the new ones replace, `data["run.json"]|[4:5]` lines of a text. A key that is not a word is quoted.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any

Step = str | int | slice

_LINES = "|"
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_STEP = re.compile(r'\.?([A-Za-z_][\w-]*|\|)|\[(\d+)\]|\[(\d+):(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')


def difference(base: Any, value: Any) -> tuple[dict[str, Any], list[str]]:
    """What `base` lacks to be `value`: new values by path, and the paths that are removed."""
    changes: dict[str, Any] = {}
    removed: list[str] = []
    for path, found, *new in _different("", base, value):
        if new:
            changes[path] = new[0]
        else:
            removed.append(found)
    return changes, removed


def _different(path: str, base: Any, value: Any) -> Iterator[tuple[Any, ...]]:
    if json.dumps(base, sort_keys=True) == json.dumps(value, sort_keys=True):
        return
    parts: list[tuple[Any, ...]] | None = None
    if isinstance(base, dict) and isinstance(value, dict):
        parts = list(_different_keys(path, base, value))
    elif isinstance(base, list) and isinstance(value, list):
        parts = list(_different_items(path, base, value))
    elif isinstance(base, str) and isinstance(value, str) and "\n" in base and "\n" in value:
        parts = list(_different_slices(path + _LINES, base.split("\n"), value.split("\n")))
    if parts is not None and sum(map(_weight, parts)) < _weight((path, None, value)):
        yield from parts
    else:
        yield path, None, value


def _different_keys(path: str, base: Any, value: Any) -> Iterator[tuple[Any, ...]]:
    for key in sorted(base.keys() | value.keys()):
        below = _joined(path, key)
        if key not in value:
            yield None, below
        elif key not in base:
            yield below, None, value[key]
        else:
            yield from _different(below, base[key], value[key])


def _different_items(path: str, base: list[Any], value: list[Any]) -> Iterator[tuple[Any, ...]]:
    if len(base) == len(value):
        pairs = [(index, index) for index in range(len(base))]
    else:
        before, after = _names(base), _names(value)
        if not (before and after):
            yield from _different_slices(path, base, value)
            return
        matcher = SequenceMatcher(None, before, after, autojunk=False)
        pairs = [(b.a + n, b.b + n) for b in matcher.get_matching_blocks() for n in range(b.size)]
        for kind, i, j, k, m in matcher.get_opcodes():
            if kind != "equal":
                yield f"{path}[{i}:{j}]", None, value[k:m]
    for old, new in pairs:
        yield from _different(f"{path}[{old}]", base[old], value[new])


def _names(items: list[Any]) -> list[str]:
    """Unique names of the items of a list; empty if any is missing or repeated."""
    names = [
        next((f"{key}={item[key]}" for key in ("kind", "name", "key") if key in item), "")
        for item in items
        if isinstance(item, dict)
    ]
    return names if len(names) == len(items) == len(set(names)) and all(names) else []


def _different_slices(path: str, base: list[Any], value: list[Any]) -> Iterator[tuple[Any, ...]]:
    before, after = ([json.dumps(x, sort_keys=True) for x in items] for items in (base, value))
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind != "equal":
            yield f"{path}[{i}:{j}]", None, value[k:m]


def _weight(part: tuple[Any, ...]) -> int:
    return 1 + lines(part[2]) if len(part) > 2 else 1


def lines(value: Any) -> int:
    """Approximate number of lines of a value."""
    if isinstance(value, dict):
        return sum(1 + lines(v) for v in value.values())
    if isinstance(value, list):
        return sum(lines(v) or 1 for v in value)
    return value.count("\n") if isinstance(value, str) else 0


def _joined(path: str, key: str) -> str:
    if _WORD.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key)}]"


def _steps(path: str) -> list[Step]:
    steps: list[Step] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        assert found, f"{path!r} is not a path from {path[at:]!r} on"
        word, index, start, end, quoted = found.groups()
        if quoted:
            steps.append(json.loads(quoted))
        elif start:
            steps.append(slice(int(start), int(end)))
        else:
            steps.append(int(index) if index else word)
        at = found.end()
    return steps


def applied(base: Any, changes: dict[str, Any], removed: list[str]) -> Any:
    """`base` with changes and removals of `difference`; the base itself stays as it is."""
    root = {"": copy.deepcopy(base)}
    edits = [(["", *_steps(path)], [value]) for path, value in changes.items()]
    edits += [(["", *_steps(path)], []) for path in removed]
    texts: list[tuple[Any, Step]] = []
    for steps, new in sorted(edits, key=_turn):
        at: Any = root
        for step, following in pairwise(steps):
            if following == _LINES and isinstance(at[step], str):
                at[step] = at[step].split("\n")
                texts.append((at, step))
            at = at if step == _LINES else at[step]
        if new:
            at[steps[-1]] = copy.deepcopy(new[0])
        else:
            del at[steps[-1]]
    for at, step in texts:
        at[step] = "\n".join(at[step])
    return root[""]


def _turn(edit: tuple[list[Step], Any]) -> tuple[int, int]:
    """Slices last, the inner and later ones first: none moves what another one's path names."""
    steps, _ = edit
    last = steps[-1]
    return (-len(steps), -last.start) if isinstance(last, slice) else (-1000, 0)
