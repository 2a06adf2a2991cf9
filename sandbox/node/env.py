"""The environment, command and arguments of a container, as the kubelet composes them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping

from sandbox.node.api import Json
from sandbox.node.downward_api import BadReference, Placement, pod_field, resource_field

_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")
_NAME = re.compile(r"^[^=\x00]+$")

Fetch = Callable[[str, str], Json | None]
"""(kind "configmaps" or "secrets", name) -> the object in the pod's namespace, None if absent."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(VAR)` becomes its value if there is one, else stays; `$$` becomes `$`."""

    def one(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return values.get(match[2], match[0])

    return _REFERENCE.sub(one, text)


def environment(
    pod: Json, container: Json, base: Mapping[str, str], placement: Placement, fetch: Fetch
) -> dict[str, str]:
    """`base` (the image's and the cluster's variables), then envFrom, then env, in the spec's order.

    Raises BadReference for a missing object or key that is not optional.
    """
    values = dict(base)
    for source in container.get("envFrom") or []:
        values.update(_from_source(source, fetch))
    for entry in container.get("env") or []:
        value = _value(pod, container, entry, values, placement, fetch)
        if value is not None:
            values[entry["name"]] = value
    return values


def argv(container: Json, entrypoint: list[str], values: Mapping[str, str]) -> list[str]:
    """What to execute: command replaces the image's entrypoint; args are appended."""
    command = [expand(word, values) for word in container.get("command") or []]
    args = [expand(word, values) for word in container.get("args") or []]
    words = (command or entrypoint) + args
    if not words:
        raise BadReference(f"container {container['name']}: no command, and the image has none")
    return words


def data_of(kind: str, item: Json) -> dict[str, bytes]:
    """All keys of a ConfigMap or Secret."""
    if kind == "secrets":
        return {key: base64.b64decode(value) for key, value in (item.get("data") or {}).items()}
    texts = {key: str(value).encode() for key, value in (item.get("data") or {}).items()}
    binary = {k: base64.b64decode(v) for k, v in (item.get("binaryData") or {}).items()}
    return {**texts, **binary}


def _from_source(source: Json, fetch: Fetch) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    kind = "configmaps" if "configMapRef" in source else "secrets"
    ref = source.get("configMapRef") or source.get("secretRef") or {}
    item = fetch(kind, ref["name"])
    if item is None:
        if ref.get("optional"):
            return {}
        raise BadReference(f"{_singular(kind)} {ref['name']!r} not found")
    return {
        prefix + key: value.decode(errors="replace")
        for key, value in data_of(kind, item).items()
        if _NAME.match(prefix + key) and b"\x00" not in value
    }


def _value(
    pod: Json,
    container: Json,
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
    if "resourceFieldRef" in source:
        return resource_field(pod, source["resourceFieldRef"], container, placement)
    if "configMapKeyRef" in source:
        return _key("configmaps", source["configMapKeyRef"], fetch)
    if "secretKeyRef" in source:
        return _key("secrets", source["secretKeyRef"], fetch)
    raise BadReference(f"env {entry['name']}: valueFrom {sorted(source)} is not supported here")


def _key(kind: str, ref: Json, fetch: Fetch) -> str | None:
    item = fetch(kind, ref["name"])
    data = data_of(kind, item) if item is not None else {}
    if ref["key"] in data:
        return data[ref["key"]].decode(errors="replace")
    if ref.get("optional"):
        return None
    if item is None:
        raise BadReference(f"{_singular(kind)} {ref['name']!r} not found")
    raise BadReference(f"couldn't find key {ref['key']} in {_singular(kind)} {ref['name']!r}")


def _singular(kind: str) -> str:
    return "configmap" if kind == "configmaps" else "secret"
