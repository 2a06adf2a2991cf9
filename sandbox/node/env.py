"""Environment, command and arguments of a container, composed as the kubelet does; the downward API."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping

from sandbox.node.api import Json
from sandbox.node.context import HOST_IP

_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['([^']+)'\]$")


class InvalidReference(Exception):
    """A reference cannot be resolved; the message names it and the valid ones."""


def pod_field(pod: Json, path: str, pod_ip: str) -> str:
    """Return the value of a fieldPath. Raises InvalidReference for an unknown one."""
    metadata, spec = pod["metadata"], pod["spec"]
    subscript = _SUBSCRIPT.match(path)
    if subscript:
        return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    simple: dict[str, Callable[[], object]] = {
        "metadata.name": lambda: metadata["name"],
        "metadata.namespace": lambda: metadata["namespace"],
        "metadata.uid": lambda: metadata["uid"],
        "spec.nodeName": lambda: spec.get("nodeName", ""),
        "spec.serviceAccountName": lambda: spec.get("serviceAccountName", ""),
        "status.hostIP": lambda: HOST_IP,
        "status.hostIPs": lambda: HOST_IP,
        "status.podIP": lambda: pod_ip,
        "status.podIPs": lambda: pod_ip,
    }
    if path not in simple:
        raise InvalidReference(f"fieldPath {path!r}: must be one of {', '.join(sorted(simple))}")
    return str(simple[path]())


def all_containers(pod: Json) -> list[Json]:
    """Return init containers, then main containers, in the order of the spec."""
    spec = pod["spec"]
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


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
    pod: Json, container: Json, base: Mapping[str, str], pod_ip: str, fetch: Fetch
) -> dict[str, str]:
    """Merge `base` (variables of image and cluster) and env, in the spec's order.

    Raises InvalidReference for a missing object or key that is not optional.
    """
    values = dict(base)
    for entry in container.get("env") or []:
        value = _value(pod, entry, values, pod_ip, fetch)
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
    pod: Json, entry: Json, values: Mapping[str, str], pod_ip: str, fetch: Fetch
) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return expand(entry.get("value") or "", values)
    if "fieldRef" in source:
        return pod_field(pod, source["fieldRef"]["fieldPath"], pod_ip)
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
