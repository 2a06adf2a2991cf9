"""Runs for which there is not enough: no pool suits them, no quota is free, no nodes are there."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from infra.domain import naming
from ops import objects, quota
from ops.objects import Json
from ops.placement import node_refusals, plain
from ops.quota import Room
from ops.snapshot import Snapshot, counted
from ops.symptoms.pending import finds_no_place, kueue_says, pending, place, workload_name
from ops.verdict import Verdict

_SHOWN: Final = 6
"""Runs that are listed one by one."""


def no_flavor(snapshot: Snapshot) -> Verdict | None:
    """Its affinity and tolerations leave no flavor of its queue over."""
    if not pending(snapshot) or snapshot.cluster_queue is None:
        return None
    refusals = quota.refusals(snapshot)
    if not refusals or not all(refusals.values()):
        return None
    return Verdict(
        symptom="no-flavor",
        headline="can never start: its affinity or tolerations fit none of its queue's pools",
        evidence=(
            *(f"resourceflavor/{name}: {why}" for name, why in refusals.items()),
            f"{workload_name(snapshot)}: {kueue_says(snapshot)}",
        ),
        remedy=(
            "change gpuModel, gpusPerNode or capacity in the run file: pools are"
            f" {', '.join(refusals)}",
            "a pool that was added after the run was launched is not used by it: raise `version`",
        ),
    )


def too_big(snapshot: Snapshot) -> Verdict | None:
    """It asks for more than its queue could ever give."""
    rooms = _rooms(snapshot)
    if not rooms or any(room.possible for room in rooms):
        return None
    return Verdict(
        symptom="too-big",
        headline="can never start: it asks for more than its queue may ever have",
        evidence=tuple(
            f"resourceflavor/{r.flavor}: {plain(r.asked)} {r.resource} asked,"
            f" {plain(r.most)} at most" + _limit_text(r)
            for r in rooms
        ),
        remedy=("ask for fewer nodes, or raise the pool's max or the team's borrowing limit",),
    )


def cost_cap(snapshot: Snapshot) -> Verdict | None:
    """There is free quota, and the team's limit keeps it from borrowing that."""
    rooms = _rooms(snapshot)
    limited = [room for room in rooms if room.limited and room.possible]
    if not limited or any(room.enough for room in rooms):
        return None
    names = ", ".join(room.flavor for room in limited)
    return Verdict(
        symptom="cost-cap",
        headline=f"waits: team {snapshot.team} has borrowed all that it may of {names}",
        evidence=(*map(_room_line, rooms), *_holder_lines(snapshot, rooms)),
        remedy=(
            "wait for the team's own runs, or raise its `borrowing` or `onDemandUsdPerHour` in the"
            " stack's file",
            "it starts sooner if another pool above gets free",
        ),
    )


def quota_exhausted(snapshot: Snapshot) -> Verdict | None:
    """All flavors that suit it are taken."""
    rooms = _rooms(snapshot)
    if not rooms:
        return _by_message(snapshot)
    if any(room.enough for room in rooms):
        return None
    best = max((room for room in rooms if room.possible), key=lambda room: room.free)
    return Verdict(
        symptom="quota-exhausted",
        headline=f"waits for quota: {plain(best.asked)} {best.resource} asked,"
        f" {plain(best.free)} free in {best.flavor}{place(snapshot)}",
        evidence=(*map(_room_line, rooms), *_holder_lines(snapshot, rooms)),
        remedy=(
            "wait for the runs above, or ask a lead to stop one",
            f"kubectl get clusterqueue {naming.cluster_queue(snapshot.team)} -o yaml",
        ),
    )


def _by_message(snapshot: Snapshot) -> Verdict | None:
    """For people who may not read ClusterQueues: Kueue's own words."""
    message = kueue_says(snapshot)
    if not pending(snapshot) or "insufficient" not in message:
        return None
    return Verdict(
        symptom="quota-exhausted",
        headline=f"waits for quota{place(snapshot)}",
        evidence=(f"{workload_name(snapshot)}: {message}", *_holder_lines(snapshot, ())),
        remedy=("who holds the quota: a platform engineer sees it with the same command",),
    )


def no_place(snapshot: Snapshot) -> Verdict | None:
    """There is quota, and no nodes on which the whole gang fits."""
    message = kueue_says(snapshot)
    if snapshot.workload is None or not pending(snapshot) or not finds_no_place(snapshot):
        return None
    spec = quota.pod_specs(snapshot.workload)[0]
    pools = [room.flavor for room in _rooms(snapshot)]
    return Verdict(
        symptom="no-nodes",
        headline="waits for nodes: there is quota, but the gang does not fit on the nodes that are there",
        evidence=(*node_lines(snapshot, spec, pools), f"{workload_name(snapshot)}: {message}"),
        remedy=(
            "bring the nodes back (kubectl get nodes -L " + naming.POOL + "), or remove the taint",
            "nodes that would take it may be occupied: kubectl get pods -A -o wide",
        ),
    )


def node_lines(snapshot: Snapshot, spec: Json, pools: Sequence[str]) -> list[str]:
    """Counts of the pools' nodes by what keeps the pod away; none where nodes may not be read."""
    if "nodes" in snapshot.hidden:
        return []
    gained = [
        toleration
        for flavor in snapshot.flavors
        if objects.name(flavor) in pools
        for toleration in (flavor.get("spec") or {}).get("tolerations") or []
    ]
    nodes = [n for n in snapshot.nodes if not pools or objects.label(n, naming.POOL) in pools]
    counts = node_refusals(spec, nodes, *gained)
    lines = [
        f"nodes: {count} of {counts.total()} {reason or 'would take a pod of it if empty'}"
        for reason, count in sorted(counts.items(), key=lambda item: item[0] == "")
    ]
    return lines or [f"nodes: none in {', '.join(pools) or 'the cluster'}"]


def _rooms(snapshot: Snapshot) -> list[Room]:
    if not pending(snapshot) or snapshot.cluster_queue is None:
        return []
    return quota.rooms(snapshot)


def _limit_text(room: Room) -> str:
    limit = room.borrowing_limit
    return "" if limit is None else f" (borrowing limit {plain(limit)})"


def _room_line(room: Room) -> str:
    return (
        f"resourceflavor/{room.flavor}: {plain(room.asked)} {room.resource} asked,"
        f" {plain(room.free)} free of {plain(room.most)}" + _limit_text(room)
    )


def _holder_lines(snapshot: Snapshot, rooms: Sequence[Room]) -> list[str]:
    flavors = [room.flavor for room in rooms] or [objects.name(f) for f in snapshot.flavors]
    found = quota.holders(snapshot.workloads, flavors)
    lines = [
        f"{h.flavor}: {h.run_id} (team {h.team}) holds {plain(h.gpus)} GPUs on {counted(h.nodes, 'node')}"
        for h in found[:_SHOWN]
    ]
    rest = found[_SHOWN:]
    total = sum((h.gpus for h in rest), Decimal(0))
    return [
        *lines,
        *([f"{counted(len(rest), 'more run')} hold {plain(total)} GPUs"] if rest else []),
    ]
