"""Kubernetes objects as Pulumi resources, straight from manifests.

Manifests are built by pure functions, so that tests, golden files and `kubectl` can read them. pulumi_kubernetes'
typed classes would convert each of them back, and its Node has no `status`, which simulated nodes require.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

Manifest = dict[str, Any]


def type_token(manifest: Mapping[str, Any]) -> str:
    """Return the official provider's type token of a manifest."""
    version = manifest["apiVersion"]
    return f"kubernetes:{'core/v1' if version == 'v1' else version}:{manifest['kind']}"


class KubernetesObject(pulumi.CustomResource):
    """One object, with the type and inputs of pulumi_kubernetes' classes."""

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
    """Return ObjectMeta without empty fields."""
    fields: Manifest = {"name": name}
    if namespace:
        fields["namespace"] = namespace
    if labels:
        fields["labels"] = dict(labels)
    if annotations:
        fields["annotations"] = dict(annotations)
    return fields
