"""Runs that lack capacity: no suitable pool, no free quota, no nodes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from infra.domain import naming
from ops import objects, quota
from ops.objects import Json
from ops.placement import format_amount, node_rejections, places
from ops.quota import FlavorCapacity
from ops.snapshot import Snapshot, Symptom, Verdict, pluralize
from ops.symptoms.pending import (
    is_pending,
    kueue_message,
    lacks_topology_fit,
    queue_position,
    workload_name,
)

REJECTED: Final = "couldn't assign flavors"
"""Part of Kueue's message about a run that it has tried to admit."""
_SHOWN: Final = 6
"""Runs listed individually."""


def no_flavor(snapshot: Snapshot) -> Verdict | None:
    if not is_pending(snapshot) or snapshot.cluster_queue is None:
        return None
    refusals = quota.flavor_mismatches(snapshot)
    if not refusals or not all(refusals.values()):
        return None
    return Verdict(
        symptom="no-flavor",
        headline="can never start: its affinity or tolerations match no pool of its queue",
        evidence=(
            *(f"resourceflavor/{name}: {why}" for name, why in refusals.items()),
            f"{workload_name(snapshot)}: {kueue_message(snapshot)}",
        ),
        remedy=(
            "change gpuModel, gpusPerNode or capacity in the run file; pools:"
            f" {', '.join(refusals)}",
            "a run does not use pools that were added after its launch: raise `version`",
        ),
    )


def too_big(snapshot: Snapshot) -> Verdict | None:
    rooms = _capacities(snapshot)
    if not rooms or any(room.can_ever_fit for room in rooms):
        return None
    return Verdict(
        symptom="too-big",
        headline="can never start: it requests more than the maximum of its queue",
        evidence=tuple(
            f"resourceflavor/{r.flavor}: {format_amount(r.asked)} {r.resource} requested,"
            f" {format_amount(r.maximum)} at most" + _limit_text(r)
            for r in rooms
        ),
        remedy=("request fewer nodes, or raise the pool's max or the team's borrowing limit",),
    )


def cost_cap(snapshot: Snapshot) -> Verdict | None:
    rooms = _capacities(snapshot)
    limited = [room for room in rooms if room.limited and room.can_ever_fit]
    if not limited or any(room.fits_now for room in rooms):
        return None
    names = ", ".join(room.flavor for room in limited)
    return Verdict(
        symptom="cost-cap",
        headline=f"waits: team {snapshot.team} has reached its borrowing limit for {names}",
        evidence=(*map(_capacity_line, rooms), *_holder_lines(snapshot, rooms)),
        remedy=(
            "wait for the team's own runs, or raise its `borrowing` or `onDemandUsdPerHour` in the"
            " stack file",
            "it also starts when another pool above has free quota",
        ),
    )


def quota_exhausted(snapshot: Snapshot) -> Verdict | None:
    rooms = _capacities(snapshot)
    if not rooms:
        return _by_message(snapshot)
    if any(room.fits_now for room in rooms):
        return None
    best = max((room for room in rooms if room.can_ever_fit), key=lambda room: room.free)
    return Verdict(
        symptom="quota-exhausted",
        headline=f"waits for quota: {format_amount(best.asked)} {best.resource} requested,"
        f" {format_amount(best.free)} free in {best.flavor}{queue_position(snapshot)}",
        evidence=(*map(_capacity_line, rooms), *_holder_lines(snapshot, rooms)),
        remedy=(
            "wait for the runs above, or ask a team lead to stop one",
            f"kubectl get clusterqueue {naming.cluster_queue(snapshot.team)} -o yaml",
        ),
    )


def _by_message(snapshot: Snapshot) -> Verdict | None:
    """For callers who may not read ClusterQueues: report Kueue's message."""
    message = kueue_message(snapshot)
    if not is_pending(snapshot) or "insufficient" not in message:
        return None
    return Verdict(
        symptom="quota-exhausted",
        headline=f"waits for quota{queue_position(snapshot)}",
        evidence=(f"{workload_name(snapshot)}: {message}", *_holder_lines(snapshot, ())),
        remedy=("ask a platform engineer to run this command: it lists who holds the quota",),
    )


def no_nodes(snapshot: Snapshot) -> Verdict | None:
    message = kueue_message(snapshot)
    if snapshot.workload is None or not is_pending(snapshot):
        return None
    spec = quota.pod_specs(snapshot.workload)[0]
    pools = [room.flavor for room in _capacities(snapshot)]
    if not lacks_topology_fit(snapshot) and not _nodes_are_too_few(snapshot):
        return None
    return Verdict(
        symptom="no-nodes",
        headline="waits for nodes: quota is free, but the gang does not fit on the existing nodes",
        evidence=(*node_lines(snapshot, spec, pools), f"{workload_name(snapshot)}: {message}"),
        remedy=(
            f"restore the nodes (kubectl get nodes -L {naming.POOL}), or remove the taint",
            "matching nodes may be in use: kubectl get pods -A -o wide",
        ),
    )


def _nodes_are_too_few(snapshot: Snapshot) -> bool:
    """Whether no pool with free quota could hold the gang, even if its nodes were idle.

    Kueue's message is about the flavor that it tried last, which need not be the one that lacks nodes.
    """
    assert snapshot.workload is not None
    if "nodes" in snapshot.hidden or REJECTED not in kueue_message(snapshot):
        return False
    free = [room.flavor for room in _capacities(snapshot) if room.fits_now]
    [spec, *others] = quota.pod_specs(snapshot.workload)
    if not free or others:
        return False
    wanted = int(snapshot.workload["spec"]["podSets"][0].get("count", 1))
    return all(
        places(spec, _nodes(snapshot, [flavor]), *_gained(snapshot, [flavor])) < wanted
        for flavor in free
    )


def node_lines(snapshot: Snapshot, spec: Json, pools: Sequence[str]) -> list[str]:
    """Return the pools' nodes counted by rejection reason; empty if nodes may not be read."""
    if "nodes" in snapshot.hidden:
        return []
    counts = node_rejections(spec, _nodes(snapshot, pools), *_gained(snapshot, pools))
    lines = [
        f"nodes: {count} of {counts.total()} {reason or 'would fit one of its pods if idle'}"
        for reason, count in sorted(counts.items(), key=lambda item: item[0] == "")
    ]
    return lines or [f"nodes: none in {', '.join(pools) or 'the cluster'}"]


def _nodes(snapshot: Snapshot, pools: Sequence[str]) -> list[Json]:
    return [n for n in snapshot.nodes if not pools or objects.label(n, naming.POOL) in pools]


def _gained(snapshot: Snapshot, pools: Sequence[str]) -> list[Json]:
    return [
        toleration
        for flavor in snapshot.flavors
        if objects.name(flavor) in pools
        for toleration in (flavor.get("spec") or {}).get("tolerations") or []
    ]


def _capacities(snapshot: Snapshot) -> list[FlavorCapacity]:
    if not is_pending(snapshot) or snapshot.cluster_queue is None:
        return []
    return quota.flavor_capacities(snapshot)


def _limit_text(room: FlavorCapacity) -> str:
    limit = room.borrowing_limit
    return "" if limit is None else f" (borrowing limit {format_amount(limit)})"


def _capacity_line(room: FlavorCapacity) -> str:
    return (
        f"resourceflavor/{room.flavor}: {format_amount(room.asked)} {room.resource} requested,"
        f" {format_amount(room.free)} free of {format_amount(room.maximum)}" + _limit_text(room)
    )


def _holder_lines(snapshot: Snapshot, rooms: Sequence[FlavorCapacity]) -> list[str]:
    flavors = [room.flavor for room in rooms] or [objects.name(f) for f in snapshot.flavors]
    found = quota.quota_holders(snapshot.workloads, flavors)
    lines = [
        f"{h.flavor}: {h.run_id} (team {h.team}) holds {format_amount(h.gpus)} GPUs on"
        f" {pluralize(h.nodes, 'node')}"
        for h in found[:_SHOWN]
    ]
    rest = found[_SHOWN:]
    total = sum((h.gpus for h in rest), Decimal(0))
    return [
        *lines,
        *([f"{pluralize(len(rest), 'more run')} hold {format_amount(total)} GPUs"] if rest else []),
    ]


CHECKS: Final[tuple[Symptom, ...]] = (no_flavor, too_big, cost_cap, quota_exhausted)
"""Causes in the quota, those that waiting does not cure first."""
