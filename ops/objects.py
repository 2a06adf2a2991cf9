"""Accessors for Kubernetes objects decoded from JSON: conditions, quantities, owners, times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from infra.domain import naming, quantity

Json = dict[str, Any]
"""One object, as decoded from JSON."""

MEMBERS: Final = "groups"
"""Key of the objects of its groups in that of a run with groups: ops/groups.py."""


def meta(item: Json) -> Json:
    found: Json = item.get("metadata") or {}
    return found


def name(item: Json) -> str:
    return str(meta(item).get("name", ""))


def full_name(item: Json) -> str:
    return f"{meta(item).get('namespace')}/{name(item)}"


def label(item: Json, key: str) -> str:
    """Return a label's value; empty without it."""
    return str((meta(item).get("labels") or {}).get(key, ""))


def status(item: Json | None) -> Json:
    found: Json = (item or {}).get("status") or {}
    return found


def condition(item: Json | None, kind: str) -> Json:
    """Return the condition of a type, whatever its status; empty without it."""
    conditions = status(item).get("conditions") or []
    return next((c for c in conditions if c["type"] == kind), {})


def condition_is_true(item: Json | None, kind: str) -> bool:
    return bool(condition(item, kind).get("status") == "True")


def containers(pod: Json | None, *, init: bool = False) -> list[Json]:
    """Return the status records of a pod's containers. `init`: those of its init containers first."""
    kinds = ("initContainerStatuses", "containerStatuses") if init else ("containerStatuses",)
    return [one for kind in kinds for one in status(pod).get(kind) or []]


def container(pod: Json | None, called: str) -> Json:
    """Return the status record of one container; empty without one."""
    return next((one for one in containers(pod) if one["name"] == called), {})


def state(record: Json, *kinds: str) -> Json:
    """Return the details of a container's state if it is of these, such as `waiting`; else empty."""
    now = record.get("state") or {}
    return next((now[kind] for kind in kinds if now.get(kind)), {})


def owned_by(item: Json, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in meta(item).get("ownerReferences") or [])


def owner(item: Json) -> str:
    """Return the name of the controlling owner; empty without one."""
    owners = meta(item).get("ownerReferences") or []
    return next((str(o["name"]) for o in owners if o.get("controller")), "")


def time(text: str | None) -> dt.datetime | None:
    """Parse an RFC 3339 time stamp."""
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def unix(text: str | None) -> float | None:
    """Parse an RFC 3339 time stamp into Unix seconds; None for an empty one."""
    found = time(text)
    return found.timestamp() if found else None


def stamp(when: dt.datetime) -> str:
    """Return a time as the API server writes it."""
    return when.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def requests(pod_spec: Json) -> dict[str, Decimal]:
    """Return a pod's requests by resource.

    As the scheduler counts: the sum of its containers, and at least the maximum of its init containers.
    """
    total: dict[str, Decimal] = {}
    for container in pod_spec.get("containers") or []:
        for resource, value in _requests(container).items():
            total[resource] = total.get(resource, Decimal(0)) + value
    for container in pod_spec.get("initContainers") or []:
        sidecar = container.get("restartPolicy") == "Always"
        for resource, value in _requests(container).items():
            known = total.get(resource, Decimal(0))
            total[resource] = known + value if sidecar else max(known, value)
    return total


def _requests(container: Json) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    wanted = (resources.get("limits") or {}) | (resources.get("requests") or {})
    return {resource: quantity.parse(value) for resource, value in wanted.items()}


def newest_first(items: Iterable[Json]) -> list[Json]:
    return sorted(items, key=lambda item: str(meta(item).get("creationTimestamp")), reverse=True)


def workload_of(item: Json, workloads: Iterable[Json]) -> Json | None:
    """Return the newest Workload of an object: an older one may still be terminating."""
    uid = str(meta(item).get("uid"))
    return next(iter(newest_first(w for w in workloads if owned_by(w, uid))), None)


def reference(item: Json) -> str:
    """Return kubectl arguments: `jobset/NAME -n NAMESPACE`, for a run with groups `jobset -l LABEL=RUN_ID ...`."""
    kind = str(item.get("kind", "object")).lower()
    namespace = meta(item).get("namespace")
    which = f" -l {naming.RUN_ID}={name(item)}" if MEMBERS in item else f"/{name(item)}"
    return f"{kind}{which}" + (f" -n {namespace}" if namespace else "")


def run_id_of(item: Json) -> str:
    """Return the run id of an object: its label, else its owner's name, else its own name."""
    return label(item, naming.RUN_ID) or owner(item) or name(item)
