"""When a waiting run is expected to start: a range from what its own team holds and what waits before it. Pure.

Runs of the team with a lower priority give way, where its queue preempts them: at once, or after their grace
period. The soonest time assumes that everything goes well for the run: runs of other teams, whose ends only they
can read, end now, and nothing before it takes what becomes free. The latest time assumes the guarantee of the team
only, the order of the queue, and that runs use their time limit or a quarter more than their remaining steps take.
It leaves out what is submitted later, failures, and nodes that must start.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from infra.domain import naming, quantity
from ops import objects, quota
from ops.objects import Json
from ops.runs import states
from ops.runs.progress import NO_PROGRESS, Progress
from ops.snapshot import Snapshot, format_duration

_SLOWER: Final = 1.25
"""Remaining steps may take this much longer than at the speed of the last minutes: evaluation, checkpoints."""
_ENDING_S: Final = 120.0
"""The last save, and the end of the pods."""
_NAMED: Final = 3
"""Runs named in a reason."""


@dataclass(frozen=True, kw_only=True)
class ExpectedStart:
    """Seconds from now; None: not known."""

    soonest_s: float | None
    latest_s: float | None
    why: str
    """What it waits for, or why it is not known."""

    @property
    def text(self) -> str:
        """Return one line without a period."""
        if self.soonest_s is None:
            return f"not known: {self.why}"
        if self.latest_s is None:
            if self.soonest_s == 0:
                return f"not known: {self.why}"
            return (
                f"not before {format_duration(self.soonest_s)} from now; no latest time: {self.why}"
            )
        if self.latest_s == 0:
            return f"now: {self.why}"
        if self.soonest_s == 0:
            return f"within {format_duration(self.latest_s)}: {self.why}"
        return (
            f"in {format_duration(self.soonest_s)} to {format_duration(self.latest_s)}: {self.why}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields and the text."""
        return dataclasses.asdict(self) | {"text": self.text}


@dataclass(frozen=True, kw_only=True)
class _Holder:
    """A run of the team that holds GPUs of a flavor."""

    run_id: str
    flavor: str
    gpus: Decimal
    soonest_s: float
    latest_s: float
    """Infinite: it has no end that is known."""
    gives_way: bool = False
    """Whether Kueue preempts it for the run."""


def expected_start(snapshot: Snapshot, known: Mapping[str, Progress]) -> ExpectedStart | None:
    """Return when a run starts; None for one that does not wait in a queue. `known`: progress by run id."""
    workload = snapshot.workload
    if workload is None or not waits(snapshot):
        return None
    if why := _unknowable(snapshot):
        return ExpectedStart(soonest_s=None, latest_s=None, why=why)
    wanted = _gpus(workload)
    suiting = _suiting(snapshot, workload)
    holders = _holders(snapshot, known)
    soonest, needed = _soonest(snapshot, suiting, wanted, holders)
    if soonest is None:
        why = "it requests more GPUs than its queue can ever have"
        return ExpectedStart(soonest_s=None, latest_s=None, why=why)
    latest, why = _latest(snapshot, holders)
    if latest is not None:
        latest = max(latest, soonest)
        why = _named(needed) if needed else why
    return ExpectedStart(soonest_s=soonest, latest_s=latest, why=why)


def waits(snapshot: Snapshot) -> bool:
    """Whether the run waits in a queue of Kueue."""
    workload = snapshot.workload
    return workload is not None and bool(snapshot.queue_name and states.queue_order([workload]))


def _unknowable(snapshot: Snapshot) -> str:
    """Return why nothing can be said; empty if something can."""
    assert snapshot.workload is not None
    if snapshot.cluster_queue is None:
        return "the team's ClusterQueue is not readable with your role, or does not exist"
    for queue in (snapshot.local_queue, snapshot.cluster_queue):
        if ((queue or {}).get("spec") or {}).get("stopPolicy") in ("Hold", "HoldAndDrain"):
            return "its queue is stopped"
    if not _gpus(snapshot.workload):
        return "it requests no GPUs, and CPUs that become free are not counted"
    if not _suiting(snapshot, snapshot.workload):
        return "it suits no pool of its queue"
    return ""


def _gpus(workload: Json) -> Decimal:
    return quota.total_requests(workload).get(naming.GPU, Decimal(0))


def _suiting(snapshot: Snapshot, workload: Json) -> list[str]:
    """Return the flavors that a run of the queue can use, in the queue's order."""
    refusals = quota.flavor_mismatches(dataclasses.replace(snapshot, workload=workload))
    return [flavor for flavor, why in refusals.items() if not why]


def _holders(snapshot: Snapshot, known: Mapping[str, Progress]) -> list[_Holder]:
    """Return what the team's admitted runs and dev pods hold, with the ends that can be known."""
    assert snapshot.workload is not None and snapshot.cluster_queue is not None
    own = int(snapshot.workload["spec"].get("priority") or 0)
    preemption = snapshot.cluster_queue["spec"].get("preemption") or {}
    preempts = preemption.get("withinClusterQueue", "Never") != "Never"
    found = []
    for one in snapshot.workloads:
        mine = objects.meta(one).get("namespace") == snapshot.namespace
        if not mine or objects.condition_is_true(one, "Finished"):
            continue
        run_id = objects.run_id_of(one) or objects.name(one)
        left = known.get(run_id, NO_PROGRESS).seconds_left
        gives_way = preempts and int(one["spec"].get("priority") or 0) < own
        limit = _limit_left(snapshot, one)
        estimate = math.inf if left is None else left * _SLOWER + _ENDING_S
        if gives_way:
            estimate = min(estimate, max(_ENDING_S, _grace(one)))
        for flavor, gpus in _held(one).items():
            found.append(
                _Holder(
                    run_id=run_id,
                    flavor=flavor,
                    gpus=gpus,
                    soonest_s=0.0 if left is None or gives_way else min(left, limit),
                    latest_s=min(estimate, limit),
                    gives_way=gives_way,
                )
            )
    return found


def _grace(workload: Json) -> float:
    """Return the seconds that the pods of a run have to save and end."""
    specs = [one["template"]["spec"] for one in workload["spec"].get("podSets") or []]
    return max((float(one.get("terminationGracePeriodSeconds") or 30) for one in specs), default=30)


def _held(workload: Json) -> dict[str, Decimal]:
    """Return the GPUs that an admitted Workload holds, by flavor."""
    found: dict[str, Decimal] = {}
    admission = objects.status(workload).get("admission") or {}
    for one in admission.get("podSetAssignments") or []:
        flavor = str((one.get("flavors") or {}).get(naming.GPU, ""))
        gpus = quantity.parse((one.get("resourceUsage") or {}).get(naming.GPU, "0"))
        if flavor and gpus:
            found[flavor] = found.get(flavor, Decimal(0)) + gpus
    return found


def _limit(workload: Json) -> float:
    """Return the time limit of a run in seconds; infinite without one."""
    return float(workload["spec"].get("maximumExecutionTimeSeconds") or math.inf)


def _limit_left(snapshot: Snapshot, workload: Json) -> float:
    """Return how much of its time limit is left at most: attempts before this one are not subtracted."""
    since = objects.time(objects.condition(workload, "Admitted").get("lastTransitionTime"))
    spent = (snapshot.now - since).total_seconds() if since else 0.0
    return max(0.0, _limit(workload) - spent)


def _soonest(
    snapshot: Snapshot, suiting: Sequence[str], wanted: Decimal, holders: Sequence[_Holder]
) -> tuple[float | None, Sequence[_Holder]]:
    """Return the soonest start, and the runs of the team that must end first."""
    best: float | None = None
    needed: Sequence[_Holder] = ()
    for flavor in suiting:
        room = quota.flavor_capacity(snapshot, flavor, naming.GPU, wanted)
        if not room.can_ever_fit:
            continue
        mine = sorted((h for h in holders if h.flavor == flavor), key=lambda h: h.soonest_s)
        # What other teams hold of the shared part may end at any time.
        free = max(room.free, room.maximum - sum((h.gpus for h in mine), Decimal(0)))
        ended: list[_Holder] = []
        while free < wanted and len(ended) < len(mine):
            ended.append(mine[len(ended)])
            free += ended[-1].gpus
        if free < wanted:
            continue
        at = ended[-1].soonest_s if ended else 0.0
        if best is None or at < best:
            best, needed = at, ended
    return best, needed


def _latest(snapshot: Snapshot, holders: Sequence[_Holder]) -> tuple[float | None, str]:
    """Return the latest start, and what it waits for or why there is none.

    Runs start in the order of their queue, each when the guarantee of the team has room for it.
    """
    assert snapshot.workload is not None and snapshot.cluster_queue is not None
    free = {
        flavor: quota.guarantee(snapshot.cluster_queue, flavor, naming.GPU)
        - sum((h.gpus for h in holders if h.flavor == flavor), Decimal(0))
        for flavor in quota.queue_flavors(snapshot.cluster_queue)
    }
    order = itertools.count()
    ends = [(h.latest_s, next(order), h.flavor, h.gpus) for h in holders]
    heapq.heapify(ends)
    endless = [h.run_id for h in holders if math.isinf(h.latest_s)]
    now = 0.0
    for one in _queue_until(snapshot):
        suiting, gpus = _suiting(snapshot, one), _gpus(one)
        while not (fitting := [f for f in suiting if free.get(f, Decimal(0)) >= gpus]):
            if not ends or math.isinf(ends[0][0]):
                return None, _no_latest(endless, one is snapshot.workload)
            now, _, flavor, released = heapq.heappop(ends)
            free[flavor] = free.get(flavor, Decimal(0)) + released
        free[fitting[0]] -= gpus
        if (end := now + _limit(one)) == math.inf and one is not snapshot.workload:
            endless.append(objects.run_id_of(one))
        heapq.heappush(ends, (end, next(order), fitting[0], gpus))
    return (
        now,
        "the team's guarantee has room for it, so it waits for Kueue, nodes or their topology",
    )


def _queue_until(snapshot: Snapshot) -> list[Json]:
    """Return the runs that wait in its queue before it, and the run itself."""
    assert snapshot.workload is not None
    order = states.queue_order(
        [
            one
            for one in snapshot.workloads
            if objects.meta(one).get("namespace") == snapshot.namespace
            and one["spec"].get("queueName") == snapshot.queue_name
        ]
    )
    names = [objects.name(one) for one in order]
    own = objects.name(snapshot.workload)
    before = order[: names.index(own)] if own in names else order
    return [*before, snapshot.workload]


def _no_latest(endless: Sequence[str], own: bool) -> str:
    if endless:
        more = ", ..." if len(endless) > _NAMED else ""
        return f"no end is known of {', '.join(endless[:_NAMED])}{more}: no time limit, and no measured steps"
    who = "it" if own else "a run before it"
    return f"{who} needs GPUs beyond the team's guarantee, which other teams lend while they do not use them"


def _named(holders: Sequence[_Holder]) -> str:
    names = list(dict.fromkeys(h.run_id for h in holders))
    more = ", ..." if len(names) > _NAMED else ""
    what = "has given way: lower priority" if all(h.gives_way for h in holders) else "has ended"
    return f"when {', '.join(names[:_NAMED])}{more} {what}"
