"""The downward API: fieldRef, for env and downwardAPI volumes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.node.api import Json

_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['([^']+)'\]$")


class InvalidReference(Exception):
    """A reference cannot be resolved; the message names it and the valid ones."""


@dataclass(frozen=True)
class Placement:
    """Where a pod runs: facts that are not in the Pod object."""

    pod_ip: str
    host_ip: str


def pod_field(pod: Json, path: str, placement: Placement) -> str:
    """Return the value of a fieldPath. Raises InvalidReference for an unknown one."""
    metadata, spec = pod["metadata"], pod["spec"]
    subscript = _SUBSCRIPT.match(path)
    if subscript:
        return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    simple: dict[str, Callable[[], object]] = {
        "metadata.name": lambda: metadata["name"],
        "metadata.namespace": lambda: metadata["namespace"],
        "metadata.uid": lambda: metadata["uid"],
        "spec.nodeName": lambda: spec.get("nodeName", ""),
        "spec.serviceAccountName": lambda: spec.get("serviceAccountName", ""),
        "status.hostIP": lambda: placement.host_ip,
        "status.hostIPs": lambda: placement.host_ip,
        "status.podIP": lambda: placement.pod_ip,
        "status.podIPs": lambda: placement.pod_ip,
    }
    if path not in simple:
        raise InvalidReference(f"fieldPath {path!r}: must be one of {', '.join(sorted(simple))}")
    return str(simple[path]())


def all_containers(pod: Json) -> list[Json]:
    """Return init containers, then main containers, in the order of the spec."""
    spec = pod["spec"]
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
