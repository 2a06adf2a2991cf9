"""Reject unsupported pod features up front, before a pod starts."""

from __future__ import annotations

from sandbox.node.api import Json
from sandbox.node.downward_api import all_containers

VOLUME_KINDS = frozenset(
    {
        "persistentVolumeClaim",
        "ephemeral",
        "emptyDir",
        "configMap",
        "secret",
        "projected",
        "downwardAPI",
    }
)


def unsupported_features(pod: Json) -> list[str]:
    """Return one line per unsupported feature of the pod; empty when it can run."""
    spec = pod["spec"]
    found = [
        f"spec.{name}: true is not supported on a process node; remove it"
        for name in ("hostPID", "hostIPC", "shareProcessNamespace")
        if spec.get(name)
    ]
    for volume in spec.get("volumes") or []:
        kinds = [key for key in volume if key != "name"] or ["emptyDir"]
        if kinds[0] not in VOLUME_KINDS:
            found.append(
                f"volume {volume['name']}: {kinds[0]} is not supported on a process node; "
                f"use one of {', '.join(sorted(VOLUME_KINDS))}"
            )
    for container in all_containers(pod):
        found += _container(container)
    return found


def _container(container: Json) -> list[str]:
    name, found = container["name"], []
    if (container.get("securityContext") or {}).get("privileged"):
        found.append(f"container {name}: privileged is not supported on a process node; remove it")
    if container.get("volumeDevices"):
        found.append(
            f"container {name}: volumeDevices are not supported on a process node; remove them"
        )
    if "postStart" in (container.get("lifecycle") or {}):
        found.append(
            f"container {name}: lifecycle.postStart is not supported on a process node; "
            "run it in the container's command"
        )
    return found
