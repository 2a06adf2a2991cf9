"""Reject unsupported pod features up front, before a pod starts."""

from __future__ import annotations

from typing import Final

from sandbox.node.api import Json
from sandbox.node.downward_api import all_containers

VOLUME_KINDS: Final = frozenset(
    {"persistentVolumeClaim", "emptyDir", "configMap", "secret", "projected", "downwardAPI"}
)
_OF_PODS: Final = (
    *("hostAliases", "hostIPC", "hostNetwork", "hostPID", "readinessGates"),
    *("setHostnameAsFQDN", "shareProcessNamespace"),
)
_OF_CONTAINERS: Final = ("envFrom", "startupProbe", "volumeDevices")


def unsupported_features(pod: Json) -> list[str]:
    """Return one line per unsupported feature of the pod; empty when it can run."""
    spec = pod["spec"]
    found = [_line(f"spec.{name}") for name in _OF_PODS if spec.get(name)]
    for volume in spec.get("volumes") or []:
        kind = next((key for key in volume if key != "name"), "emptyDir")
        if kind not in VOLUME_KINDS:
            valid = f"use one of {', '.join(sorted(VOLUME_KINDS))}"
            found.append(_line(f"volume {volume['name']}: {kind}", valid))
    for container in all_containers(pod):
        name = f"container {container['name']}"
        found += [_line(f"{name}: {one}") for one in _OF_CONTAINERS if container.get(one)]
        if (container.get("securityContext") or {}).get("privileged"):
            found.append(_line(f"{name}: privileged"))
        if any("subPathExpr" in mount for mount in container.get("volumeMounts") or []):
            found.append(_line(f"{name}: subPathExpr", "use subPath"))
        if "postStart" in (container.get("lifecycle") or {}):
            found.append(_line(f"{name}: lifecycle.postStart", "run it in the container's command"))
    return found


def _line(what: str, remedy: str = "remove it") -> str:
    return f"{what}: not supported on a process node; {remedy}"
