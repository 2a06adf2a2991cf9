"""Secrecy of values that the program marks as secret and of payloads of Secret objects."""

from __future__ import annotations

import base64
from typing import Any

from sandbox.provider.objects import Object
from sandbox.provider.properties import Secret, has_secret, leaves, reveal

_PAYLOAD = ("data", "stringData")
_SHORTEST_SECRET = 4
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def mark_like(plain: Any, marked: Any) -> Any:
    """Return `plain` with every value secret whose counterpart in `marked` is secret.

    A list with a secret element is secret as a whole, since elements may move.
    """
    if isinstance(marked, Secret):
        return Secret(plain)
    if isinstance(plain, dict) and isinstance(marked, dict):
        return {key: mark_like(value, marked.get(key)) for key, value in plain.items()}
    if isinstance(plain, list) and isinstance(marked, list) and has_secret(marked):
        return Secret(plain)
    return plain


def mark_secret_object(obj: Object) -> Object:
    """Mark the payload of a Secret object as secret, also in kubectl's last-applied annotation."""
    if obj.get("kind") != "Secret" or obj.get("apiVersion") != "v1":
        return obj
    marked = {key: _secret(value) if key in _PAYLOAD else value for key, value in obj.items()}
    meta = obj.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    if isinstance(annotations, dict) and _LAST_APPLIED in annotations:
        sealed = {**annotations, _LAST_APPLIED: _secret(annotations[_LAST_APPLIED])}
        marked["metadata"] = {**meta, "annotations": sealed} if isinstance(meta, dict) else meta
    return marked


def payload(obj: Object) -> dict[str, Any]:
    """Return a Secret's merged `data` and `stringData` in base64, as the API server stores them."""
    data = dict(obj.get("data") or {})
    for key, value in (obj.get("stringData") or {}).items():
        data[key] = base64.b64encode(value.encode()).decode() if isinstance(value, str) else value
    return data


def redacted(text: str, *trees: Any) -> str:
    """Return a text without the secret values of property trees, plain or in base64."""
    for tree in trees:
        for value in _secret_texts(tree):
            encoded = base64.b64encode(value.encode()).decode()
            text = text.replace(value, "[secret]").replace(encoded, "[secret]")
    return text


def _secret_texts(tree: Any) -> list[str]:
    """Return the strings in Secret markers, longest first, except very short ones."""
    texts = {
        leaf
        for found in leaves(tree)
        if isinstance(found, Secret)
        for leaf in leaves(reveal(found))
        if isinstance(leaf, str) and len(leaf) >= _SHORTEST_SECRET
    }
    return sorted(texts, key=len, reverse=True)


def _secret(value: Any) -> Any:
    return value if isinstance(value, Secret) or value is None else Secret(value)
