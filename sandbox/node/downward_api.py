"""The downward API: fieldRef and resourceFieldRef, for env and downwardAPI volumes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.domain import quantity
from sandbox.node.api import Json

_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['([^']+)'\]$")


class InvalidReference(Exception):
    """A reference cannot be resolved; the message names it and the valid ones."""


@dataclass(frozen=True)
class Placement:
    """Where a pod runs: facts that are not in the Pod object."""

    pod_ip: str
    host_ip: str
    allocatable: Mapping[str, str]
    """The node's resources: defaults of limits that a container does not set."""


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
        "metadata.labels": lambda: format_entries(metadata.get("labels") or {}),
        "metadata.annotations": lambda: format_entries(metadata.get("annotations") or {}),
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


def format_entries(entries: Mapping[str, str]) -> str:
    """Format labels or annotations as the downward API does: sorted `key="value"` lines."""

    def quoted(value: str) -> str:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'

    return "\n".join(f"{key}={quoted(str(entries[key]))}" for key in sorted(entries))


def resource_field(pod: Json, ref: Json, container: Json | None, placement: Placement) -> str:
    """Return limits or requests of a container, rounded up to whole divisors.

    `container`: default for references without containerName (those in env).
    """
    name = ref.get("containerName")
    if name:
        container = next((c for c in all_containers(pod) if c["name"] == name), None)
    if container is None:
        raise InvalidReference(f"resourceFieldRef: the pod has no container {name!r}")
    group, _, resource = str(ref["resource"]).partition(".")
    resources: dict[str, Any] = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    value: str | None
    if group == "limits":
        value = limits.get(resource, placement.allocatable.get(resource))
    elif group == "requests":
        value = requests.get(resource, limits.get(resource, "0"))
    else:
        raise InvalidReference(f"resource {ref['resource']!r}: must be limits.X or requests.X")
    return str(quantity.divide(value if value is not None else "0", ref.get("divisor") or "1"))


def all_containers(pod: Json) -> list[Json]:
    """Return init containers, then main containers, in the order of the spec."""
    spec = pod["spec"]
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
