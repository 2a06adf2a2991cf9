"""Parts of every manifest of a Kubernetes object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Manifest = dict[str, Any]


def type_token(manifest: Mapping[str, Any]) -> str:
    version = manifest["apiVersion"]
    return f"kubernetes:{'core/v1' if version == 'v1' else version}:{manifest['kind']}"


def metadata(
    name: str,
    *,
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Return ObjectMeta without empty fields."""
    fields: Manifest = {"name": name}
    if namespace:
        fields["namespace"] = namespace
    if labels:
        fields["labels"] = dict(labels)
    if annotations:
        fields["annotations"] = dict(annotations)
    return fields
