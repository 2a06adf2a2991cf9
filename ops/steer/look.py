"""Read what a look at the cluster shows: nodes, and each Workload as `training.spot` counts it. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from ops import groups, objects, placement
from ops.objects import Json
from ops.runs.progress import Progress
from ops.steer.memory import Memory
from training.spot.steer import Pool, Run

RECLAIMED: Final = (
    "aws-node-termination-handler/spot-itn",
    "karpenter.sh/disrupted",
    f"{naming.DOMAIN}/interruption",
)
"""Taints of a node whose instance is going to be taken."""
_UNKNOWN: Final = "unknown"

Key = tuple[str, str, str]
"""Pool, instance type and zone."""


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The nodes of pools at one look, by UID."""

    there: frozenset[str]
    """Ready, and not about to be taken."""
    keys: Mapping[str, Key]
    """Of all of them."""
    by_name: Mapping[str, str]
    """UID by name."""


def nodes(items: Iterable[Json]) -> Nodes:
    there, keys, by_name = set(), {}, {}
    for node in items:
        if not (pool := objects.label(node, naming.POOL)):
            continue
        uid = str(objects.meta(node).get("uid") or objects.name(node))
        kind = objects.label(node, naming.INSTANCE_TYPE) or _UNKNOWN
        keys[uid] = (pool, kind, objects.label(node, naming.ZONE) or _UNKNOWN)
        by_name[objects.name(node)] = uid
        if _stays(node):
            there.add(uid)
    return Nodes(there=frozenset(there), keys=keys, by_name=by_name)


def _stays(node: Json) -> bool:
    taints = {str(t.get("key")) for t in (node.get("spec") or {}).get("taints") or []}
    ready = objects.condition_is_true(node, "Ready")
    return ready and not taints & set(RECLAIMED) and "deletionTimestamp" not in objects.meta(node)


Gang = tuple[str, str, int | None]
"""Namespace, run id, and number of the group; None: the run has none."""


def gang_of(item: Json) -> Gang:
    namespace = str(objects.meta(item).get("namespace"))
    return namespace, objects.run_id_of(item), groups.number_of(item)


def nodes_of_gangs(pods: Iterable[Json], known: Nodes) -> dict[Gang, set[str]]:
    found: dict[Gang, set[str]] = {}
    for pod in pods:
        uid = known.by_name.get(str((pod.get("spec") or {}).get("nodeName") or ""))
        if uid and objects.status(pod).get("phase") in ("Pending", "Running"):
            found.setdefault(gang_of(pod), set()).add(uid)
    return found


def nodes_of_runs(held: Mapping[Gang, set[str]]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for (namespace, run_id, *_), nodes in held.items():
        found[namespace, run_id] = found.get((namespace, run_id), set()) | nodes
    return found


def eligible(workload: Json, queue: Json, pools: Mapping[str, Pool]) -> list[str]:
    """Return the flavors of a queue, in its order, that all pods of a Workload accept."""
    specs = [
        (one.get("template") or {}).get("spec") or {}
        for one in (workload.get("spec") or {}).get("podSets") or []
    ]
    names = [
        str(flavor["name"])
        for group in (queue.get("spec") or {}).get("resourceGroups") or []
        for flavor in group.get("flavors") or []
    ]
    return [
        name
        for name in dict.fromkeys(names)
        if name in pools
        and all(placement.matches(s, {naming.POOL: name}, known_keys_only=True) for s in specs)
    ]


def run(
    workload: Json, memory: Memory, progress: Progress, now: float, *, pool: str, may_buy: bool
) -> Run:
    """Return a Workload as `training.spot.steer` counts it. `pool`: the one that it holds."""
    spec = workload.get("spec") or {}
    sets: Sequence[Json] = spec.get("podSets") or []
    templates = [one.get("template") or {} for one in sets]
    deadlines = [(objects.meta(t).get("annotations") or {}).get(naming.DEADLINE) for t in templates]
    grace = [(t.get("spec") or {}).get("terminationGracePeriodSeconds") or 0 for t in templates]
    created = objects.time(objects.meta(workload).get("creationTimestamp"))
    left, longest = progress.seconds_left, spec.get("maximumExecutionTimeSeconds")
    work = None
    if progress.steps and progress.steps_per_s:
        work = progress.steps / progress.steps_per_s
    return Run(
        nodes=max(1, sum(int(one.get("count", 1)) for one in sets)),
        begun=created.timestamp() if created else now,
        deadline=next((_unix(text) for text in deadlines if text), None),
        work_s=work,
        left_s=left,
        longest_s=left if left is not None else (float(longest) if longest else None),
        save_s=float(max(grace, default=0)),
        measured_save_s=progress.save_s,
        waited_s=0.0 if memory.queued is None else now - memory.queued,
        pool=pool,
        may_buy=may_buy,
    )


def _unix(text: str) -> float | None:
    try:
        return dt.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
