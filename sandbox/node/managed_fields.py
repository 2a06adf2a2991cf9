"""Split an object by field manager into the parts that server-side apply would send."""

from __future__ import annotations

import json
from typing import Any

from sandbox.node.api import Json

_SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
_LIFECYCLE_TAINTS = "node.kubernetes.io/"
"""Prefix of taints that the node lifecycle controller manages."""
_KUBELET_STATUS = ("conditions", "addresses", "nodeInfo", "daemonEndpoints", "images")
"""Fields of a Node's status that its kubelet writes."""


def applied_parts(item: Json) -> list[tuple[str, Json]]:
    """Return (manager, object with the manager's fields) for each manager of server-side apply."""
    parts = []
    for entry in item["metadata"].get("managedFields") or []:
        if entry.get("operation") != "Apply" or entry.get("subresource"):
            continue
        part = _owned_part(item, entry.get("fieldsV1") or {})
        part["apiVersion"], part["kind"] = entry.get("apiVersion", "v1"), item.get("kind", "Node")
        part.setdefault("metadata", {})["name"] = item["metadata"]["name"]
        parts.append((str(entry["manager"]), part))
    return parts


def without_server_fields(item: Json) -> Json:
    """Return the object without fields that the API server or a kubelet sets."""
    metadata = {k: v for k, v in item["metadata"].items() if k not in _SERVER_FIELDS}
    status = {k: v for k, v in (item.get("status") or {}).items() if k not in _KUBELET_STATUS}
    spec = {**(item.get("spec") or {})}
    spec["taints"] = [
        t for t in spec.get("taints") or [] if not t["key"].startswith(_LIFECYCLE_TAINTS)
    ]
    return {**item, "metadata": metadata, "spec": spec, "status": status}


def _owned_part(value: Any, fields: Json) -> Any:
    """Return the part of `value` in a FieldsV1 set; an empty set means all of it."""
    inner = {key: sub for key, sub in fields.items() if key != "."}
    if not inner:
        return value
    if isinstance(value, list):
        return [
            _owned_part(e, sub) for key, sub in inner.items() for e in value if _matches_key(e, key)
        ]
    return {
        key[2:]: _owned_part(value[key[2:]], sub)
        for key, sub in inner.items()
        if key.startswith("f:") and key[2:] in value
    }


def _matches_key(element: Any, key: str) -> bool:
    """Whether a list element matches the key `k:{...}` or `v:...`."""
    wanted = json.loads(key[2:])
    if key.startswith("v:"):
        return bool(element == wanted)
    return all(element.get(name) == value for name, value in wanted.items())
