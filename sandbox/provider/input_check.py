"""Inputs made complete and checked, before anything is compared or created."""

from __future__ import annotations

from typing import Any

from sandbox.provider import autonaming, state
from sandbox.provider.cluster import Cluster
from sandbox.provider.errors import ProviderError
from sandbox.provider.objects import (
    Object,
    is_patch,
    kind_of,
    kind_of_type,
    metadata,
    name_of,
    put,
)
from sandbox.provider.properties import Unknown

_OFFICIAL = "use the official plugin (SANDBOX_PROVIDER=official)"

_UNSUPPORTED = {
    "kubernetes:helm.sh/v4:Chart": f"the provider stand-in cannot fetch Helm charts; {_OFFICIAL}",
    "kubernetes:kustomize/v2:Directory": f"the provider stand-in runs no kustomize; {_OFFICIAL}",
}


def unsupported_reason(token: str) -> str | None:
    """Why resources of a type cannot be had here, or None."""
    if token in _UNSUPPORTED:
        return _UNSUPPORTED[token]
    if token.endswith("List"):
        return "lists only exist in manifests; register the objects in it one by one"
    return None


def check_inputs(
    token: str,
    name: str,
    olds: dict[str, Any],
    news: dict[str, Any],
    seed: bytes,
    proposal: tuple[autonaming.Mode, str] | None,
    cluster: Cluster,
) -> dict[str, Any]:
    """The inputs to register: named, in a namespace, without read-only fields.

    `olds` are the inputs of the existing resource, empty for a new one. Raises ProviderError with
    the property's path in front.
    """
    manifest = state.to_manifest(news)
    if is_patch(token):
        if not name_of(manifest):
            raise ProviderError("metadata.name: missing; a Patch resource names what it patches")
    elif olds:
        autonaming.keep_old(manifest, state.to_manifest(olds))
    else:
        autonaming.name_new(manifest, name, seed, proposal)
    if metadata(manifest).get("generateName") and not metadata(manifest).get("name"):
        raise ProviderError(
            "metadata.generateName: server-side apply needs a name; give metadata.name, or neither"
        )
    if manifest.get("kind") == "CustomResourceDefinition":
        cluster.discovery.announce(manifest)
    _default_namespace(token, manifest, cluster)
    return state.to_inputs(manifest, news)


def _default_namespace(token: str, manifest: Object, cluster: Cluster) -> None:
    """Give a namespaced object without a namespace the default one."""
    meta = manifest.get("metadata", {})
    if isinstance(meta, Unknown) or metadata(manifest).get("namespace"):
        return
    kind = kind_of(manifest) if "kind" in manifest else kind_of_type(token)
    if cluster.discovery.namespaced(kind):
        put(manifest, ("metadata", "namespace"), cluster.namespace)
