"""Kubernetes objects as Pulumi resources, straight from manifests.

Manifests are built by pure functions, so that tests, golden files and `kubectl` can read them. The
typed classes of pulumi_kubernetes would translate each of them back; and Node has no `status` there,
which a simulated node cannot do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

Manifest = dict[str, Any]


def type_token(manifest: Mapping[str, Any]) -> str:
    """Pulumi's type token of a manifest, as the official provider spells it."""
    version = manifest["apiVersion"]
    return f"kubernetes:{'core/v1' if version == 'v1' else version}:{manifest['kind']}"


class KubernetesObject(pulumi.CustomResource):
    """One object; its type and inputs are those of pulumi_kubernetes' own classes."""

    def __init__(
        self, name: str, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(type_token(manifest), name, dict(manifest), opts)


def metadata(
    name: str,
    *,
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """ObjectMeta without empty fields."""
    fields: Manifest = {"name": name}
    if namespace:
        fields["namespace"] = namespace
    if labels:
        fields["labels"] = dict(labels)
    if annotations:
        fields["annotations"] = dict(annotations)
    return fields
