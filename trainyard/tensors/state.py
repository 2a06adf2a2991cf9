"""State of a program as tensors by name and the rest as JSON: nested dicts, lists and tuples of both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

from trainyard.tensors.layout import Layout

STATE: Final = "state"
"""Group of the tensors that lie in no dict of the tree's top level whose name can be that of a file."""
_GROUP: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_KEYS: Final = (str, int, float, bool, type(None))

Path = tuple[Any, ...]
Groups = dict[str, dict[str, torch.Tensor]]


class StateMismatch(ValueError):
    """The state of a program does not fit the checkpoint."""


def split(tree: Any) -> tuple[Any, Groups]:
    """Return a tree as JSON, with the names of its tensors, and its tensors by group and name.

    `{"model": {"w": ...}}` has the tensor `w` of the group `model`. Raises TypeError for other values.
    """
    groups: Groups = {}
    return _encoded(tree, (), groups), groups


def _encoded(value: Any, path: Path, groups: Groups) -> Any:
    if isinstance(value, torch.Tensor):
        group, name = _place(path)
        if name in groups.setdefault(group, {}):
            raise TypeError(f"{_shown(path)}: two tensors have this name; rename one")
        groups[group][name] = value
        return {"tensor": [group, name]}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, _KEYS):
                raise TypeError(f"{_shown(path)}: the key {key!r} is not text or a number")
        pairs = [[key, _encoded(one, (*path, key), groups)] for key, one in value.items()]
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encoded(one, (*path, n), groups) for n, one in enumerate(value)]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(
        f"{_shown(path)}: is a {type(value).__name__}; valid are tensors, numbers, text, None, and dicts, lists"
        " and tuples of them; convert it"
    )


def _place(path: Path) -> tuple[str, str]:
    if len(path) > 1 and _GROUP.fullmatch(str(path[0])):
        return str(path[0]), "/".join(map(str, path[1:]))
    return STATE, "/".join(map(str, path))


def _shown(path: Path) -> str:
    return "/".join(map(str, path)) or "the state"


def join(encoded: Any, given: Any, find: Callable[[str, str], torch.Tensor]) -> Any:
    """Return the tree of `split`, with the tensors that `find` returns for group and name.

    `given`: the state of the program, whose dicts decide which keys are returned; an empty one, such as the
    state of an optimizer before its first step, gets all.
    """
    if not isinstance(encoded, dict):
        return encoded
    ((kind, inner),) = encoded.items()
    if kind == "tensor":
        group, name = inner
        return find(group, name)
    if kind == "dict":
        known = given if isinstance(given, Mapping) else {}
        stored = {key for key, _ in inner}
        kept = {key: one for key, one in known.items() if key not in stored}
        return kept | {
            key: join(one, known.get(key), find) for key, one in inner if not known or key in known
        }
    same = isinstance(given, (list, tuple)) and len(given) == len(inner)
    found = [join(one, given[n] if same else None, find) for n, one in enumerate(inner)]
    return found if kind == "list" else tuple(found)


def merge(first: Any, second: Any) -> Any:
    """Return what the ranks have together: the first one's values, and what only the second one has."""
    if not (isinstance(first, dict) and isinstance(second, dict)) or "dict" not in first:
        return first
    joint = dict(first["dict"])
    for key, one in second.get("dict", ()):
        joint[key] = merge(joint[key], one) if key in joint else one
    return {"dict": [list(pair) for pair in joint.items()]}


def mismatches(stored: Layout, wanted: Layout) -> Iterator[str]:
    """Yield how the tensors of all ranks differ from the stored ones, a line each; a group without any fits."""
    for group, own in wanted.items():
        there = stored.get(group, {})
        for name in sorted(own.keys() ^ there.keys()):
            where = "state" if name in own else "checkpoint"
            yield f"{group}/{name}: only the {where} has it"
        for name in sorted(own.keys() & there.keys()):
            one, other = own[name], there[name]
            if (one.dtype, one.shape) != (other.dtype, other.shape):
                yield (
                    f"{group}/{name}: is {other.dtype} {list(other.shape)} in the checkpoint,"
                    f" {one.dtype} {list(one.shape)} in the state"
                )
