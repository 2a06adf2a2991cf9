"""Kinds that the API server serves: their paths and scopes.

The scopes of built-in kinds are known without a request, so that previews work without a cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.provider.connection import Connection
from sandbox.provider.errors import ApiError, UnknownKind
from sandbox.provider.objects import Kind, Object

CLUSTER_SCOPED = {
    "": {"ComponentStatus", "Namespace", "Node", "PersistentVolume"},
    "admissionregistration.k8s.io": {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    },
    "apiextensions.k8s.io": {"CustomResourceDefinition"},
    "apiregistration.k8s.io": {"APIService"},
    "authentication.k8s.io": {"SelfSubjectReview", "TokenReview"},
    "authorization.k8s.io": {
        "SelfSubjectAccessReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
    },
    "certificates.k8s.io": {"CertificateSigningRequest", "ClusterTrustBundle"},
    "flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
    "networking.k8s.io": {"IPAddress", "IngressClass", "ServiceCIDR"},
    "node.k8s.io": {"RuntimeClass"},
    "rbac.authorization.k8s.io": {"ClusterRole", "ClusterRoleBinding"},
    "resource.k8s.io": {"DeviceClass", "DeviceTaintRule", "ResourceSlice"},
    "scheduling.k8s.io": {"PriorityClass"},
    "storage.k8s.io": {
        "CSIDriver",
        "CSINode",
        "StorageClass",
        "VolumeAttachment",
        "VolumeAttributesClass",
    },
    "storagemigration.k8s.io": {"StorageVersionMigration"},
}
"""Cluster-scoped built-in kinds by group."""

NAMESPACED_GROUPS = {
    "apps",
    "autoscaling",
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "policy",
}
"""Built-in groups with namespaced kinds only."""


@dataclass(frozen=True)
class Resource:
    """A kind that the server serves."""

    kind: Kind
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Return the URL path of an object, its subresource or, without a name, the collection."""
        root = f"/apis/{self.kind.group}" if self.kind.group else "/api"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}/{self.kind.version}{scope}/{self.plural}{tail}"


class Discovery:
    """Kinds of one API server; each group and version is requested once. Thread-safe."""

    def __init__(self, connection: Connection | None) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._known: dict[Kind, Resource] = {}
        self._announced: dict[tuple[str, str], bool] = {}

    def announce(self, definition: Mapping[str, Any]) -> None:
        """Record the scope of a CustomResourceDefinition that the program creates."""
        spec = definition.get("spec")
        if isinstance(spec, Mapping) and isinstance(spec.get("names"), Mapping):
            key = (str(spec.get("group")), str(spec["names"].get("kind")))
            self._announced[key] = spec.get("scope") != "Cluster"

    def find(self, kind: Kind) -> Resource:
        """Return how the server serves a kind. Raises UnknownKind, ApiError or Unreachable.

        Unknown kinds are requested again: their definitions may have been created meanwhile.
        """
        found = self._known.get(kind)
        if found is None:
            self._load(kind.group, kind.version)
            found = self._known.get(kind)
        if found is None:
            raise UnknownKind(kind)
        return found

    def forget(self, group: str) -> None:
        """Forget a group whose definitions have changed."""
        with self._lock:
            self._known = {k: found for k, found in self._known.items() if k.group != group}

    def namespaced(self, kind: Kind) -> bool:
        """Whether a kind is namespaced; True for unknown kinds."""
        built_in = _built_in_scope(kind)
        if built_in is not None:
            return built_in
        try:
            return self.find(kind).namespaced
        except UnknownKind:
            return self._announced.get((kind.group, kind.kind), True)

    def _load(self, group: str, version: str) -> None:
        if self._connection is None:
            return
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            listed = self._connection.get(root)
        except ApiError as error:
            if error.not_found:
                return
            raise
        found = {
            Kind(group, version, entry["kind"]): _resource(group, version, entry)
            for entry in listed.get("resources", [])
            if "/" not in entry["name"]
        }
        with self._lock:
            self._known.update(found)


def _resource(group: str, version: str, entry: Object) -> Resource:
    kind = Kind(group, version, entry["kind"])
    return Resource(kind, entry["name"], bool(entry["namespaced"]))


def _built_in_scope(kind: Kind) -> bool | None:
    """Whether a built-in kind has a namespace; None for kinds that are not built in."""
    if kind.kind in CLUSTER_SCOPED.get(kind.group, ()):
        return False
    if kind.group in CLUSTER_SCOPED or kind.group in NAMESPACED_GROUPS:
        return True
    return None
