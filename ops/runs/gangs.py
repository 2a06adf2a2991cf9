"""State of what is queued by itself: a run, or each of its groups. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ops import groups, objects
from ops.objects import Json
from ops.runs import states
from ops.snapshot import Snapshot

Places = Mapping[str, tuple[int, int]]
"""Place in the queue and its length, by the uid of each pending Workload."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What is known of a run and of each of its groups alike. Times are RFC 3339, empty if unknown."""

    state: str
    """One of `states.STATES`."""
    message: str
    """Why it waits, or how it ended, in the cluster's words; often empty."""
    place: int | None
    """Place in its queue, from 1; None unless it is queued."""
    queued: int | None
    """How many are queued there."""
    priority: int | None
    nodes: int
    """Pods that it has when it runs, one per node; 0: not known."""
    ready: int
    """Pods that are ready."""
    pools: tuple[str, ...]
    """Pools that it is admitted to."""
    attempt: int
    """Start of its pods, as `states.attempt_of` counts them; 0: not started."""
    admitted: str
    """Of the current attempt."""


@dataclass(frozen=True, kw_only=True)
class GangSummary(Summary):
    number: int | None
    """Of the group; None: the gang is the whole run."""


def summarize_gangs(
    run: Json, owned: Mapping[str, Json], pods: Sequence[Json], places: Places
) -> list[GangSummary]:
    """Return the gangs of a run. `owned`: Workloads by the uid of their owner; `pods`: the run's."""
    if not groups.has_groups(run):
        return [_gang(run, owned.get(_uid(run)), pods, places)]
    mine: dict[int | None, list[Json]] = defaultdict(list)
    for pod in pods:
        mine[groups.number_of(pod)].append(pod)
    return [
        _gang(one, owned.get(_uid(one)), mine[groups.number_of(one)], places)
        for one in groups.gangs(run)
    ]


def state_of_run(run: Json, found: Sequence[GangSummary], pods: Sequence[Json]) -> str:
    """Return the state of a run by its own conditions, else by the gang that is furthest."""
    if not groups.has_groups(run):
        return found[0].state
    own = states.state_of(run, None, pods, 0, queued=False)
    if own not in (states.STARTING, states.RUNNING):
        return own
    # A group that is ready takes part, and none does so below the number that the run needs.
    order = (states.RUNNING, states.STARTING, states.QUEUED, states.STOPPING, states.STOPPED)
    there = {one.state for one in found}
    return next((state for state in order if state in there), states.FAILED)


def attempt_of(taken: Snapshot, pod: Json) -> int:
    """Return the attempt that a pod belongs to, from 1: of its group, in a run with groups."""
    number = groups.number_of(pod)
    mine = [one for one in groups.gangs(taken.run) if groups.number_of(one) == number]
    workload = objects.workload_of(mine[0], taken.workloads) if mine else None
    return states.attempt_of_pod(pod, workload)


def groups_text(found: Sequence[GangSummary], total: int) -> str:
    """Return how many groups take part, and what the others do: `2/4 groups, 1 starting, 1 queued`."""
    counts = Counter(one.state for one in found)
    order = (states.STARTING, states.QUEUED, states.STOPPING, states.STOPPED, states.FAILED)
    parts = [f"{counts[state]} {state}" for state in order if counts[state]]
    return ", ".join([f"{counts[states.RUNNING]}/{total} groups", *parts])


def _gang(gang: Json, workload: Json | None, pods: Sequence[Json], places: Places) -> GangSummary:
    planned = states.planned_pods(workload)
    state = states.state_of(gang, workload, pods, planned)
    place, queued = places.get(_uid(workload or {}), (None, None))
    priority = ((workload or {}).get("spec") or {}).get("priority")
    admitted = objects.condition(workload, "Admitted")
    since = str(admitted.get("lastTransitionTime") or "")
    return GangSummary(
        number=groups.number_of(gang),
        state=state,
        message=states.message_of(gang, workload, state),
        place=place if state == states.QUEUED else None,
        queued=queued if state == states.QUEUED else None,
        priority=None if priority is None else int(priority),
        nodes=planned or len(states.live_pods(pods)),
        ready=states.ready_pods(pods),
        pools=states.pools(workload),
        attempt=states.attempt_of(gang, workload),
        admitted=since if admitted.get("status") == "True" else "",
    )


def _uid(item: Json) -> str:
    return str(objects.meta(item).get("uid"))
