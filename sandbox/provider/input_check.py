"""Complete and validate inputs before they are compared or created."""

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
    "kubernetes:kustomize/v2:Directory": f"the provider stand-in does not run kustomize; {_OFFICIAL}",
}


def unsupported_reason(token: str) -> str | None:
    """Return why a resource type is not supported, or None."""
    if token in _UNSUPPORTED:
        return _UNSUPPORTED[token]
    if token.endswith("List"):
        return "lists exist in manifests only; register the list's objects one by one"
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
    """Return the inputs to register: with name and namespace, without read-only fields.

    `olds`: inputs of the existing resource, empty for a new one. Raises ProviderError; its text starts
    with the property's path.
    """
    manifest = state.to_manifest(news)
    if is_patch(token):
        if not name_of(manifest):
            raise ProviderError(
                "metadata.name: missing; a Patch resource requires the name of the object to patch"
            )
    elif olds:
        autonaming.keep_old(manifest, state.to_manifest(olds))
    else:
        autonaming.name_new(manifest, name, seed, proposal)
    if metadata(manifest).get("generateName") and not metadata(manifest).get("name"):
        raise ProviderError(
            "metadata.generateName: not supported by server-side apply; set metadata.name, or neither"
        )
    if manifest.get("kind") == "CustomResourceDefinition":
        cluster.discovery.announce(manifest)
    _default_namespace(token, manifest, cluster)
    return state.to_inputs(manifest, news)


def _default_namespace(token: str, manifest: Object, cluster: Cluster) -> None:
    """Set the default namespace on a namespaced object without one."""
    meta = manifest.get("metadata", {})
    if isinstance(meta, Unknown) or metadata(manifest).get("namespace"):
        return
    kind = kind_of(manifest) if "kind" in manifest else kind_of_type(token)
    if cluster.discovery.namespaced(kind):
        put(manifest, ("metadata", "namespace"), cluster.namespace)
