"""Differences between inputs, path by path, and drift of live objects.

Old and new inputs are compared: defaults of the API server, its spelling of quantities and fields written
by controllers never count, nor do empty values of built-in kinds that the official plugin leaves out of a state.
A refresh detects drift: it copies changed live values of input fields into the
inputs (`merge_drift`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sandbox.provider import quantity
from sandbox.provider.objects import (
    AUTONAMED,
    Object,
    is_annotated,
    metadata,
    name_of,
    namespace_of,
)
from sandbox.provider.replacement_fields import Path, replaces
from sandbox.provider.secret_values import payload

_MISSING = object()
_MERGE_KEYS = ("name", "mountPath", "containerPort", "port", "key", "ip", "type")
"""Candidate key fields of list elements, in order."""
_BUILT_IN_GROUPS = frozenset(
    {
        *("", "apps", "autoscaling", "batch", "policy"),
        *("admissionregistration.k8s.io", "coordination.k8s.io", "discovery.k8s.io"),
        *("networking.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io"),
        *("scheduling.k8s.io", "storage.k8s.io"),
    }
)
_PLAIN_BOOLEANS = frozenset(
    {
        *("globalDefault", "hostIPC", "hostNetwork", "hostPID", "paused"),
        *("publishNotReadyAddresses", "readOnly", "stdin", "stdinOnce", "tty", "unschedulable"),
    }
)
"""Fields of built-in kinds whose `false` is the same as their absence: in the API's Go types they are no pointers,
unlike `automountServiceAccountToken`, where `false` says something. Source: k8s.io/api."""


class Change(Enum):
    ADD = "add"
    DELETE = "delete"
    UPDATE = "update"


@dataclass(frozen=True)
class Difference:
    """One changed path. `replaces`: the change requires replacement."""

    path: Path
    change: Change
    replaces: bool

    @property
    def property_path(self) -> str:
        """The engine's spelling: `metadata.labels["app.kubernetes.io/name"]`."""
        return property_path(self.path)


def compare(
    old: Object, new: Object, *, forced: Iterable[str], ignored: Iterable[str], namespaced: bool
) -> list[Difference]:
    """Return the changes from old to new manifests, except those under an ignored path."""
    forced, ignored = tuple(forced), tuple(ignored)
    found = []
    sides = _canonical(old, namespaced), _canonical(new, namespaced)
    built_in = str(new.get("apiVersion", "")).rpartition("/")[0] in _BUILT_IN_GROUPS
    for path, change, value in _changes((), *sides):
        if built_in and change is not Change.UPDATE and _says_nothing(path, value):
            continue
        if not any(_under(property_path(path), prefix) for prefix in ignored):
            found.append(Difference(path, change, replaces(path, value, forced)))
    return found


def must_delete_first(old: Object, new: Object, differences: Iterable[Difference]) -> bool:
    """Whether a replacement has the name of the old object, which must be deleted first."""
    return (
        any(difference.replaces for difference in differences)
        and bool(name_of(new))
        and not is_annotated(new, AUTONAMED)
        and (namespace_of(new), name_of(new)) == (namespace_of(old), name_of(old))
    )


def merge_drift(inputs: Object, live_before: Object, live_now: Object) -> Object:
    """Return the inputs with the live values of drifted fields.

    A field has drifted when it differs from both the stored state and the inputs. Secret payloads are
    compared in the API server's form.
    """
    result: Object = _merge((), inputs, live_before, live_now)
    if inputs.get("kind") == "Secret" and inputs.get("stringData"):
        result["stringData"] = inputs["stringData"]
        if payload(inputs) != {
            key: (live_now.get("data") or {}).get(key) for key in payload(inputs)
        }:
            result.pop("stringData")
            result["data"] = live_now.get("data") or {}
    # Controllers own the status after the creation.
    if "status" in inputs:
        result["status"] = inputs["status"]
    return result


def property_path(path: Path) -> str:
    """Return a path in the engine's spelling."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif any(char in step for char in '."[]'):
            escaped = step.replace('"', '\\"')
            text += f'["{escaped}"]'
        else:
            text += f".{step}" if text else step
    return text


def _canonical(manifest: Object, namespaced: bool) -> Object:
    """Return the canonical form of a manifest."""
    result = dict(manifest)
    if result.get("kind") == "Secret" and result.get("stringData"):
        result["data"] = payload(result)
        del result["stringData"]
    meta = {key: value for key, value in metadata(result).items() if key != "namespace"}
    if namespaced:
        meta["namespace"] = metadata(result).get("namespace") or "default"
    if meta:
        result["metadata"] = meta
    spec = result.get("spec")
    if result.get("kind") == "CustomResourceDefinition" and isinstance(spec, dict):
        result.pop("status", None)
        if spec.get("preserveUnknownFields") is False:
            result["spec"] = {k: v for k, v in spec.items() if k != "preserveUnknownFields"}
    return result


def _changes(path: Path, old: Any, new: Any) -> Iterator[tuple[Path, Change, Any]]:
    """Yield path, kind of change, and the added or removed value."""
    if old is _MISSING:
        yield path, Change.ADD, new
    elif new is _MISSING:
        yield path, Change.DELETE, old
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _changes((*path, key), old.get(key, _MISSING), new.get(key, _MISSING))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            sides = [side[index] if index < len(side) else _MISSING for side in (old, new)]
            yield from _changes((*path, index), *sides)
    elif not _same(path, old, new):
        yield path, Change.UPDATE, new


def _same(path: Path, first: Any, second: Any) -> bool:
    if isinstance(first, bool) is isinstance(second, bool) and first == second:
        return True
    return quantity.is_quantity_path(path) and quantity.same(first, second)


def _says_nothing(path: Path, value: Any) -> bool:
    """Whether the value of a built-in kind is the same as its absence."""
    return value == [] or (value is False and path[-1] in _PLAIN_BOOLEANS)


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))


def _merge(path: Path, given: Any, before: Any, now: Any) -> Any:
    if now is _MISSING:
        return given if before is _MISSING or _empty(given) else _MISSING
    if isinstance(given, dict) and isinstance(now, dict):
        return _merge_fields(path, given, before, now)
    if isinstance(given, list) and isinstance(now, list):
        return _merge_elements(path, given, before, now)
    if now == before or _same(path, given, now):
        return given
    return now


def _merge_fields(
    path: Path, given: dict[str, Any], before: Any, now: dict[str, Any]
) -> dict[str, Any]:
    before = before if isinstance(before, dict) else {}
    found = {
        key: _merge((*path, key), value, before.get(key, _MISSING), now.get(key, _MISSING))
        for key, value in given.items()
    }
    return {key: value for key, value in found.items() if value is not _MISSING}


def _merge_elements(path: Path, given: list[Any], before: Any, now: list[Any]) -> list[Any]:
    before = before if isinstance(before, list) else []
    if now == before:
        return given
    key = _merge_key(given)
    if key is None:
        # Elements without keys are compared by index; appended ones belong to other clients.
        kept = [
            _merge((*path, i), value, _element(before, i), _element(now, i))
            for i, value in enumerate(given)
        ]
        return [value for value in kept if value is not _MISSING]
    kept = [
        _merge((*path, i), value, _keyed(before, key, value[key]), _keyed(now, key, value[key]))
        for i, value in enumerate(given)
    ]
    return [value for value in kept if value is not _MISSING]


def _merge_key(elements: list[Any]) -> str | None:
    """Return a field with a unique value in every element, or None."""
    for key in _MERGE_KEYS:
        values = [
            element.get(key) if isinstance(element, Mapping) else None for element in elements
        ]
        if values and None not in values and len(set(map(str, values))) == len(values):
            return key
    return None


def _keyed(elements: list[Any], key: str, value: Any) -> Any:
    for element in elements:
        if isinstance(element, Mapping) and element.get(key) == value:
            return element
    return _MISSING


def _element(elements: list[Any], index: int) -> Any:
    return elements[index] if index < len(elements) else _MISSING


def _empty(value: Any) -> bool:
    """Whether the API server may drop a value: an empty one, or objects of empty ones."""
    if isinstance(value, dict):
        return all(_empty(inner) for inner in value.values())
    return value in (None, "", 0, False) or value == []
