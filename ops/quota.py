"""Quota arithmetic of a cohort: what a run requests per flavor, what is available, who holds the rest.

As in Kueue: a queue keeps its nominal quota less its lending limit; lendable quota and the cohort's own
are shared; a borrowing limit caps what a queue takes from the shared part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from infra.domain import naming, quantity
from ops import objects, placement
from ops.objects import Json
from ops.snapshot import Snapshot

_ZERO: Final = Decimal(0)


@dataclass(frozen=True, kw_only=True)
class Quota:
    """One queue's, or the cohort's, share of one resource of one flavor."""

    nominal: Decimal = _ZERO
    borrowing_limit: Decimal | None = None
    lending_limit: Decimal | None = None
    used: Decimal = _ZERO
    borrowed: Decimal = _ZERO

    @property
    def unlendable(self) -> Decimal:
        """Quota that other queues cannot borrow."""
        return (
            _ZERO if self.lending_limit is None else max(_ZERO, self.nominal - self.lending_limit)
        )

    @property
    def lendable(self) -> Decimal:
        return self.nominal - self.unlendable

    @property
    def used_of_shared(self) -> Decimal:
        return max(_ZERO, self.used - self.unlendable)

    def left_by_limit(self) -> Decimal | None:
        """Return what the borrowing limit still allows from the shared part; None: no limit."""
        if self.borrowing_limit is None:
            return None
        return self.lendable - self.used_of_shared + self.borrowing_limit


@dataclass(frozen=True, kw_only=True)
class FlavorCapacity:
    """Capacity of one flavor for a run, of the scarcest resource (GPUs if none is scarce)."""

    flavor: str
    resource: str
    asked: Decimal
    free: Decimal
    maximum: Decimal
    """What the run's queue could use if all other queues were empty."""
    limited: bool
    """The queue's borrowing limit is the constraint, not a lack of free quota."""
    borrowing_limit: Decimal | None

    @property
    def fits_now(self) -> bool:
        return self.asked <= self.free

    @property
    def can_ever_fit(self) -> bool:
        return self.asked <= self.maximum


@dataclass(frozen=True, kw_only=True)
class QuotaHolder:
    """A run that holds quota of a flavor."""

    run_id: str
    team: str
    flavor: str
    gpus: Decimal
    nodes: int


def total_requests(workload: Json) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for pod_set in workload["spec"]["podSets"]:
        for resource, value in objects.requests(pod_set["template"]["spec"]).items():
            total[resource] = total.get(resource, _ZERO) + value * pod_set.get("count", 1)
    return total


def pod_specs(workload: Json) -> list[Json]:
    return [pod_set["template"]["spec"] for pod_set in workload["spec"]["podSets"]]


def flavor_mismatches(snapshot: Snapshot) -> dict[str, str]:
    """Return by flavor of its queue why the run cannot use it; empty text: it can."""
    assert snapshot.workload is not None
    by_name = {objects.name(f): f for f in snapshot.flavors}
    found = {}
    for flavor in queue_flavors(snapshot.cluster_queue):
        specs = pod_specs(snapshot.workload)
        known = by_name.get(flavor)
        texts = [placement.flavor_mismatch(spec, known) for spec in specs] if known else []
        found[flavor] = next((text for text in texts if text), "")
    return found


def queue_flavors(cluster_queue: Json | None) -> list[str]:
    """Return flavor names in the order in which Kueue tries them."""
    return [flavor["name"] for flavor in _flavors(cluster_queue)]


def flavor_capacities(snapshot: Snapshot) -> list[FlavorCapacity]:
    """Return the capacity of each matching flavor, in the queue's order."""
    assert snapshot.workload is not None
    suiting = [flavor for flavor, why in flavor_mismatches(snapshot).items() if not why]
    wanted = total_requests(snapshot.workload)
    return [_tightest(snapshot, flavor, wanted) for flavor in suiting]


def _tightest(snapshot: Snapshot, flavor: str, wanted: dict[str, Decimal]) -> FlavorCapacity:
    covered = _covered_resources(snapshot.cluster_queue, flavor)
    found = [
        flavor_capacity(snapshot, flavor, resource, wanted.get(resource, _ZERO))
        for resource in covered
    ]
    lacking = [room for room in found if not room.fits_now]
    gpus = [room for room in lacking or found if room.resource == naming.GPU]
    return (gpus or lacking or found)[0]


def flavor_capacity(
    snapshot: Snapshot, flavor: str, resource: str, wanted: Decimal
) -> FlavorCapacity:
    own = _quota(snapshot.cluster_queue, flavor, resource)
    members = [_quota(queue, flavor, resource) for queue in snapshot.cluster_queues] or [own]
    top = _quota(snapshot.cohort, flavor, resource)
    pot = top.nominal + sum((q.lendable for q in members), _ZERO)
    shared = pot - sum((q.used_of_shared for q in members), _ZERO)
    permitted = own.left_by_limit()
    got = shared if permitted is None else min(shared, permitted)
    maximum = own.unlendable + pot
    if own.borrowing_limit is not None:
        maximum = min(maximum, own.nominal + own.borrowing_limit)
    return FlavorCapacity(
        flavor=flavor,
        resource=resource,
        asked=wanted,
        free=max(_ZERO, own.unlendable - own.used) + max(_ZERO, got),
        maximum=maximum,
        limited=permitted is not None and permitted < min(shared, wanted),
        borrowing_limit=own.borrowing_limit,
    )


def _flavors(item: Json | None) -> Iterator[Json]:
    for group in ((item or {}).get("spec") or {}).get("resourceGroups") or []:
        yield from group["flavors"]


def _covered_resources(item: Json | None, flavor: str) -> list[str]:
    return [r["name"] for f in _flavors(item) if f["name"] == flavor for r in f["resources"]]


def gpu_quotas(cluster_queue: Json) -> dict[str, Quota]:
    """Return the quota of GPUs by flavor, of flavors that have one."""
    return {
        flavor: _quota(cluster_queue, flavor, naming.GPU)
        for flavor in queue_flavors(cluster_queue)
        if naming.GPU in _covered_resources(cluster_queue, flavor)
    }


def _quota(item: Json | None, flavor: str, resource: str) -> Quota:
    reserved = iter(objects.status(item).get("flavorsReservation") or [])
    use = next(_resources(reserved, flavor, resource), {})
    entry = next(_resources(_flavors(item), flavor, resource), {})
    borrowing, lending = entry.get("borrowingLimit"), entry.get("lendingLimit")
    return Quota(
        nominal=quantity.parse(entry.get("nominalQuota", "0")),
        borrowing_limit=None if borrowing is None else quantity.parse(borrowing),
        lending_limit=None if lending is None else quantity.parse(lending),
        used=quantity.parse(use.get("total", "0")),
        borrowed=quantity.parse(use.get("borrowed", "0")),
    )


def _resources(flavors: Iterator[Json], flavor: str, resource: str) -> Iterator[Json]:
    for entry in flavors:
        if entry["name"] == flavor:
            yield from (r for r in entry.get("resources") or [] if r["name"] == resource)


def quota_holders(workloads: Iterable[Json], flavors: Sequence[str]) -> list[QuotaHolder]:
    """Return the runs that hold GPUs of these flavors, largest first; a run with its groups is one."""
    found: dict[tuple[str, str, str], QuotaHolder] = {}
    for workload in workloads:
        admission = objects.status(workload).get("admission") or {}
        for one in admission.get("podSetAssignments") or []:
            flavor = str((one.get("flavors") or {}).get(naming.GPU, ""))
            if flavor in flavors and not objects.condition_is_true(workload, "Finished"):
                gpus = quantity.parse((one.get("resourceUsage") or {}).get(naming.GPU, "0"))
                key = objects.run_id_of(workload), team_of(workload), flavor
                before = found.get(key)
                found[key] = QuotaHolder(
                    run_id=key[0],
                    team=key[1],
                    flavor=flavor,
                    gpus=gpus + (before.gpus if before else 0),
                    nodes=int(one.get("count", 1)) + (before.nodes if before else 0),
                )
    return sorted(found.values(), key=lambda h: (-h.gpus, h.run_id))


def team_of(item: Json) -> str:
    """Return the team by label, else by namespace."""
    namespace = str(objects.meta(item).get("namespace", ""))
    return objects.label(item, naming.TEAM) or namespace.removeprefix(naming.namespace(""))
