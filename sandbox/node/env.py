"""Environment, command and arguments of a container, composed as the kubelet does."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping

from sandbox.node.api import Json
from sandbox.node.downward_api import InvalidReference, Placement, pod_field

_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")

Fetch = Callable[[str, str], Json | None]
"""(kind "configmaps" or "secrets", name) -> the object in the pod's namespace, None if absent."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """Expand `$(VAR)` if it has a value; `$$` becomes `$`."""

    def one(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return values.get(match[2], match[0])

    return _REFERENCE.sub(one, text)


def environment(
    pod: Json, container: Json, base: Mapping[str, str], placement: Placement, fetch: Fetch
) -> dict[str, str]:
    """Merge `base` (variables of image and cluster) and env, in the spec's order.

    Raises InvalidReference for a missing object or key that is not optional.
    """
    values = dict(base)
    for entry in container.get("env") or []:
        value = _value(pod, entry, values, placement, fetch)
        if value is not None:
            values[entry["name"]] = value
    return values


def container_argv(container: Json, entrypoint: list[str], values: Mapping[str, str]) -> list[str]:
    """Return the argv: command replaces the image's entrypoint, args are appended."""
    command = [expand(word, values) for word in container.get("command") or []]
    args = [expand(word, values) for word in container.get("args") or []]
    words = (command or entrypoint) + args
    if not words:
        raise InvalidReference(
            f"container {container['name']}: no command; the image has none; set command"
        )
    return words


def object_data(kind: str, item: Json) -> dict[str, bytes]:
    if kind == "secrets":
        return {key: base64.b64decode(value) for key, value in (item.get("data") or {}).items()}
    texts = {key: str(value).encode() for key, value in (item.get("data") or {}).items()}
    binary = {k: base64.b64decode(v) for k, v in (item.get("binaryData") or {}).items()}
    return {**texts, **binary}


def _value(
    pod: Json,
    entry: Json,
    values: Mapping[str, str],
    placement: Placement,
    fetch: Fetch,
) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return expand(entry.get("value") or "", values)
    if "fieldRef" in source:
        return pod_field(pod, source["fieldRef"]["fieldPath"], placement)
    if "configMapKeyRef" in source:
        return _key("configmaps", source["configMapKeyRef"], fetch)
    if "secretKeyRef" in source:
        return _key("secrets", source["secretKeyRef"], fetch)
    raise InvalidReference(f"env {entry['name']}: valueFrom {sorted(source)} is not supported")


def _key(kind: str, ref: Json, fetch: Fetch) -> str | None:
    item = fetch(kind, ref["name"])
    data = object_data(kind, item) if item is not None else {}
    if ref["key"] in data:
        return data[ref["key"]].decode(errors="replace")
    if ref.get("optional"):
        return None
    if item is None:
        raise InvalidReference(f"{_kind_name(kind)} {ref['name']!r} not found")
    raise InvalidReference(f"couldn't find key {ref['key']} in {_kind_name(kind)} {ref['name']!r}")


def _kind_name(kind: str) -> str:
    return "configmap" if kind == "configmaps" else "secret"
