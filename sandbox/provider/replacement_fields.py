"""Immutable fields: changes that replace an object.

The table is that of the official plugin. Paths are dotted; `[*]` stands for any element.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sandbox.provider.config import Settings
from sandbox.provider.objects import Kind, Object

Path = tuple[str | int, ...]

IDENTITY = ("metadata.name", "metadata.namespace")

_CONTAINER = (
    *("args", "command", "env", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "ports"),
    *("readinessProbe", "resources", "securityContext", "stdin", "stdinOnce"),
    *("terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices"),
    *("volumeMounts", "workingDir"),
)
_POD = (
    *("affinity", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks"),
    *("hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostname", "imagePullSecrets"),
    *("nodeName", "nodeSelector", "overhead", "preemptionPolicy", "priority"),
    *("priorityClassName", "readinessGates", "restartPolicy", "runtimeClassName"),
    *("schedulerName", "securityContext", "serviceAccount", "serviceAccountName"),
    *("shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds", "volumes"),
)
_VOLUME_SOURCES = (
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc"),
    *("flexVolume", "flocker", "gcePersistentDisk", "glusterfs", "hostPath", "iscsi", "local"),
    *("nfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos"),
    "vsphereVolume",
)


def _spec(*fields: str) -> tuple[str, ...]:
    return tuple(f"spec.{field}" for field in fields)


_STATEFUL_SET = _spec(
    "podManagementPolicy", "revisionHistoryLimit", "selector", "serviceName", "volumeClaimTemplates"
)

TABLE: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "PersistentVolume"): _spec(*_VOLUME_SOURCES),
    ("", "PersistentVolumeClaim"): _spec(
        "accessModes", "selector", "storageClassName", "volumeName"
    ),
    ("", "Pod"): (
        *_spec(*_POD),
        *_spec(*(f"containers[*].{field}" for field in _CONTAINER)),
        *_spec(*(f"initContainers[*].{field}" for field in _CONTAINER)),
    ),
    ("", "ResourceQuota"): _spec("scopes"),
    ("", "Secret"): ("type",),
    ("", "Service"): _spec("clusterIP"),
    ("apps", "DaemonSet"): _spec("selector"),
    ("apps", "Deployment"): _spec("selector"),
    ("apps", "StatefulSet"): _STATEFUL_SET,
    ("batch", "Job"): _spec("completions", "parallelism", "selector", "template"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): ("roleRef",),
    ("rbac.authorization.k8s.io", "RoleBinding"): ("roleRef",),
    ("storage.k8s.io", "StorageClass"): ("parameters", "provisioner"),
}
"""Fields by group and kind, in addition to `IDENTITY`; the kinds below depend on settings, too."""

_CONFIG_MAP = ("binaryData", "data")
_SECRET = ("type", "stringData", "data")


def replacement_paths(kind: Kind, new: Object, settings: Settings) -> tuple[str, ...]:
    """Return the paths whose change replaces the object."""
    frozen = new.get("immutable") is True
    if (kind.group, kind.kind) == ("", "Secret") and (frozen or not settings.secret_mutable):
        return IDENTITY + _SECRET
    if (kind.group, kind.kind) == ("", "ConfigMap"):
        return IDENTITY + (_CONFIG_MAP if frozen or not settings.config_map_mutable else ())
    return IDENTITY + TABLE.get((kind.group, kind.kind), ())


def replaces(path: Path, value: Any, forced: Iterable[str]) -> bool:
    """Whether a change replaces the object: it is at or below a forcing path, or `value` (added, removed
    or set) contains one."""
    return any(_touches(path, value, pattern.replace("[*]", ".*").split(".")) for pattern in forced)


def _touches(path: Path, value: Any, pattern: list[str]) -> bool:
    for step, expected in zip(path, pattern, strict=False):
        if step != expected and not (expected == "*" and isinstance(step, int)):
            return False
    return _holds(value, pattern[len(path) :])


def _holds(value: Any, pattern: list[str]) -> bool:
    if not pattern:
        return True
    if pattern[0] == "*":
        return isinstance(value, list) and any(_holds(inner, pattern[1:]) for inner in value)
    return (
        isinstance(value, dict) and pattern[0] in value and _holds(value[pattern[0]], pattern[1:])
    )
