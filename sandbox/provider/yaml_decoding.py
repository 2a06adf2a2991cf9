"""The `yaml:decode` function of the SDK's ConfigFile and ConfigGroup."""

from __future__ import annotations

from typing import Any

import yaml

from sandbox.provider.cluster import Cluster
from sandbox.provider.errors import ProviderError
from sandbox.provider.objects import kind_of, metadata, put


def decode(text: str, default_namespace: str, cluster: Cluster) -> list[dict[str, Any]]:
    """Return the objects of a YAML text, lists flattened, with the default namespace if they lack one.

    Raises ProviderError for invalid YAML and for documents that are not objects.
    """
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ProviderError(
            f"the manifest is not valid YAML: {' '.join(str(error).split())}"
        ) from error
    found = [obj for document in documents if document for obj in _objects(document)]
    for obj in found:
        homeless = default_namespace and not metadata(obj).get("namespace")
        if homeless and cluster.discovery.namespaced(kind_of(obj)):
            put(obj, ("metadata", "namespace"), default_namespace)
    return found


def _objects(document: Any) -> list[dict[str, Any]]:
    if not isinstance(document, dict) or not document.get("kind") or not document.get("apiVersion"):
        raise ProviderError("the manifest has a document without apiVersion and kind")
    if document["kind"].endswith("List") and isinstance(document.get("items"), list):
        return [obj for item in document["items"] for obj in _objects(item)]
    return [document]
