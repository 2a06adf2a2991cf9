"""Who wrote a field of a Kubernetes object last, by the object's `metadata.managedFields`.

The format of `fieldsV1`: https://kubernetes.io/docs/reference/using-api/server-side-apply/ (`f:NAME` a field,
`k:{...}` an element of a list by its keys, `v:VALUE` an element of a set, `.` the thing itself).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

Path = tuple[str | int, ...]

_PART: Final = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|\.?([^.\[]+)')


class Writer(StrEnum):
    """What kind of client wrote a field."""

    PROGRAM = "the program"
    """An update of a stack: interrupted, or of another checkout."""
    CONTROLLER = "a controller"
    PERSON = "a person"
    UNKNOWN = "unknown"


_PROGRAMS: Final = ("pulumi",)
_PERSONS: Final = ("kubectl", "trainyard", "k9s", "helm", "lens", "mozilla", "dashboard")
_CONTROLLERS: Final = (
    "aws-",
    "cert-",
    "cluster-autoscaler",
    "eks",
    "external-secrets",
    "gpu-operator",
    "jobset",
    "karpenter",
    "kube-",
    "kubelet",
    "kueue",
    "manager",
    "mpi-operator",
    "policy-controller",
    "prometheus-operator",
    "trainer",
    "training-operator",
    "vpc-",
)
"""Beginnings of the names that clients give themselves; a client without a name is called by its program file."""


@dataclass(frozen=True, kw_only=True)
class Manager:
    """A client that wrote a field."""

    name: str
    at: str = ""
    """Time of its last write to the object, RFC 3339; empty if the API server recorded none."""

    @property
    def writer(self) -> Writer:
        """Its kind, by its name."""
        name = self.name.lower()
        for kind, beginnings in (
            (Writer.PROGRAM, _PROGRAMS),
            (Writer.PERSON, _PERSONS),
            (Writer.CONTROLLER, _CONTROLLERS),
        ):
            if name.startswith(beginnings):
                return kind
        return Writer.UNKNOWN


def parse_path(text: str) -> Path:
    """Return the parts of a path as the engine writes it: `metadata.labels["a/b"]`, `spec.rules[0].verbs`."""
    found: list[str | int] = []
    for quoted, index, name in _PART.findall(text):
        found.append(int(index) if index else json.loads(f'"{quoted}"') if quoted else name)
    return tuple(found)


def shown_path(path: Path) -> str:
    """Return a path as the engine writes it."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.search(r'[."\[\]/]', part):
            text += f"[{json.dumps(part)}]"
        else:
            text += f".{part}" if text else part
    return text


def value_at(tree: Any, path: Path) -> Any:
    """Return the value at a path; None where there is none."""
    for part in path:
        if isinstance(part, int):
            tree = tree[part] if isinstance(tree, list) and part < len(tree) else None
        else:
            tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def last_writer(live: Mapping[str, Any], path: Path) -> Manager | None:
    """Return who wrote the field at `path` of a live object last.

    A manager of everything around the field counts if none is of the field itself: a list may have one
    owner as a whole. None: no record, as of a field that was removed, or of something that is not Kubernetes'.
    """
    entries = (live.get("metadata") or {}).get("managedFields") or []
    found: list[tuple[int, str, str]] = []
    for entry in entries:
        depth = _depth(entry.get("fieldsV1") or {}, live, path)
        if depth and not entry.get("subresource"):
            found.append((depth, str(entry.get("time") or ""), str(entry.get("manager") or "")))
    if not found:
        return None
    _, at, name = max(found)
    return Manager(name=name, at=at)


def _depth(fields: Mapping[str, Any], live: Any, path: Path) -> int:
    """Return how many parts of the path the entry's fields follow, 0 unless it owns the field or all around it."""
    for depth, part in enumerate(path):
        if not fields:
            return depth  # The entry owns this as a whole.
        below = _below(fields, live, part)
        if below is None:
            return 0
        fields = below
        live = value_at(live, (part,))
    return len(path)


def _below(fields: Mapping[str, Any], live: Any, part: str | int) -> Mapping[str, Any] | None:
    if isinstance(part, str):
        return fields.get(f"f:{part}")
    element = value_at(live, (part,))
    for key, below in fields.items():
        kind, _, text = key.partition(":")
        if kind == "v" and json.loads(text) == element:
            return dict(below)
        if kind == "k" and isinstance(element, Mapping):
            keys = json.loads(text)
            if all(element.get(name) == value for name, value in keys.items()):
                return dict(below)
    return None


def additions(
    given: Mapping[str, Any], live: Mapping[str, Any]
) -> Iterator[tuple[Path, Any, Manager]]:
    """Yield what others put into a live object beside its inputs, `given`: where, what and who.

    Neither a refresh nor an update of the provider sees these: it compares the fields that the inputs have. What
    controllers add is theirs, and so are labels, annotations and status. What the API server fills in has no
    manager, except in an object that somebody else created.
    """
    meta = live.get("metadata") or {}
    for entry in meta.get("managedFields") or []:
        by = Manager(name=str(entry.get("manager") or ""), at=str(entry.get("time") or ""))
        if by.writer in (Writer.PROGRAM, Writer.CONTROLLER) or entry.get("subresource"):
            continue
        if entry.get("operation") == "Update" and by.at == meta.get("creationTimestamp"):
            continue
        for path in _owned((), entry.get("fieldsV1") or {}, live):
            what = _added(value_at(given, path), value_at(live, path))
            if what is not None and path[0] not in ("metadata", "status"):
                yield path, what, by


def _owned(path: Path, fields: Mapping[str, Any], live: Any) -> Iterator[Path]:
    """Yield the paths of the fields that an entry owns, each as a whole."""
    parts = range(len(live)) if isinstance(live, list) else live
    below = {
        part: found
        for part in (parts if isinstance(live, (list, Mapping)) else ())
        if (found := _below(fields, live, part)) is not None
    }
    for part, found in below.items():
        yield from _owned((*path, part), found, value_at(live, (part,)))
    if not below and path and not fields:
        yield path


def _added(given: Any, now: Any) -> Any:
    """Return the entries that only `now` has, None without any; defaults within an element of a list are none."""
    if isinstance(given, Mapping) and isinstance(now, Mapping):
        return {key: one for key, one in now.items() if key not in given} or None
    if isinstance(given, list) and isinstance(now, list):
        new = [one for one in now if not any(_has(one, each) for each in given)]
        return new if len(now) > len(given) else None
    return now if given is None else None


def _has(one: Any, given: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(given, Mapping):
        return all(one.get(key) == value for key, value in given.items())
    return bool(one == given)
