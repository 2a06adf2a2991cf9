"""Readiness of volumes, quotas, tokens and resource definitions."""

from __future__ import annotations

from sandbox.provider import quantity
from sandbox.provider.awaiters.progress import READY, Progress, condition, explain, is_true, waiting
from sandbox.provider.cluster import Cluster
from sandbox.provider.objects import Kind, Object, annotation, at

_STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass")
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_TOKEN_SECRET = "kubernetes.io/service-account-token"


def claim(cluster: Cluster, obj: Object) -> Progress:
    """Bound, or of a class that binds only when a pod uses the claim."""
    phase = at(obj, ("status", "phase"), "Pending")
    if phase == "Bound" or _binds_late(cluster, at(obj, ("spec", "storageClassName"))):
        return READY
    return waiting(f"the claim is {phase}, no volume is bound to it yet")


def volume(cluster: Cluster, obj: Object) -> Progress:
    """Available, or already bound."""
    phase = at(obj, ("status", "phase"), "Pending")
    return READY if phase in ("Available", "Bound") else waiting(f"the volume is {phase}")


def resource_quota(cluster: Cluster, obj: Object) -> Progress:
    """The quota controller enforces what the spec asks for."""
    wanted = at(obj, ("spec", "hard"), {}) or {}
    enforced = at(obj, ("status", "hard"), {}) or {}
    missing = [
        key
        for key, value in wanted.items()
        if value != enforced.get(key) and not quantity.same(value, enforced.get(key))
    ]
    return waiting(f"not enforced yet: {', '.join(sorted(missing))}") if missing else READY


def secret(cluster: Cluster, obj: Object) -> Progress:
    """A service account token has been filled in; other Secrets are ready as they are."""
    if obj.get("type") != _TOKEN_SECRET or at(obj, ("data", "token")):
        return READY
    return waiting("the token is not there yet")


def resource_definition(cluster: Cluster, obj: Object) -> Progress:
    """Established: the API server serves the new kind."""
    names = condition(obj, "NamesAccepted")
    if is_true(obj, "Established") and names.get("status") == "True":
        group = str(at(obj, ("spec", "group"), ""))
        cluster.discovery.forget(group)
        return READY
    if names.get("status") == "False":
        return waiting(f"its names are not accepted: {explain(names)}")
    return waiting("not established yet")


def _binds_late(cluster: Cluster, name: str | None) -> bool:
    classes = cluster.list(_STORAGE_CLASS, "")
    for found in classes:
        chosen = (
            at(found, ("metadata", "name")) == name
            if name
            else (annotation(found, _DEFAULT_CLASS) == "true")
        )
        if chosen:
            return found.get("volumeBindingMode") == "WaitForFirstConsumer"
    return False
