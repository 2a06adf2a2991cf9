"""All runs that the caller may see, each as one record, in a constant number of requests.

One list per kind of run, one of Workloads, one of pods, and the queries of `progress`, however many runs
there are.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.domain import naming
from ops import collect, groups, objects
from ops.cluster import Cluster
from ops.collect import PODS, WORKLOADS
from ops.metrics import MetricsUnknownError, PrometheusClient
from ops.objects import Json
from ops.readable import Reader
from ops.runs import log_progress, progress, record, states
from ops.runs.gangs import GangSummary, Places, Summary, state_of_run, summarize_gangs
from ops.runs.progress import NO_PROGRESS, Progress
from ops.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class RunSummary(Summary):
    run_id: str
    name: str
    version: int | None
    team: str
    namespace: str
    kind: str
    """Of its object: `JobSet`, `Job`, ..."""
    queue: str
    created: str
    ended: str
    sweep: str
    progress: Progress
    groups: tuple[GangSummary, ...] = ()
    """Its replica groups by number; none: it is one gang."""
    groups_total: int = 0
    groups_needed: int = 0
    """Groups with which it trains at least."""

    @property
    def groups_training(self) -> int:
        return sum(one.state == states.RUNNING for one in self.groups)

    @property
    def over(self) -> bool:
        return self.state in states.ENDED

    def to_json(self) -> dict[str, Any]:
        """Return the record with the fields of `progress` in one mapping."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Runs, newest first, and what could not be read."""

    runs: tuple[RunSummary, ...]
    hidden: tuple[str, ...] = ()
    """Plurals that the caller may not list."""
    gap: str = ""
    """Why there are no metrics; empty if there are."""

    def __bool__(self) -> bool:
        return bool(self.runs)


def read_listing(
    cluster: Cluster, namespace: str | None, prometheus: PrometheusClient | None = None
) -> Listing:
    """Read all runs of a namespace, or of all. `prometheus` None: without progress.

    Raises ForbiddenError if the caller may not list runs there.
    """
    runs = collect.list_runs(cluster, namespace)
    reader = Reader(cluster)
    known: dict[str, Progress] = {}
    gap = ""
    workloads = reader.items(WORKLOADS, namespace) if runs else []
    pods = reader.items(PODS, namespace, naming.RUN_ID) if runs else []
    if prometheus is not None and runs:
        try:
            known = progress.from_prometheus(prometheus, namespace)
        except MetricsUnknownError as error:
            gap = f"no metrics: {error}"
        unmeasured = [pod for pod in pods if objects.run_id_of(pod) not in known]
        known |= log_progress.read_progress(cluster, unmeasured)
        known |= _planned_of_finished(
            cluster, [r for r in runs if objects.run_id_of(r) not in known]
        )
        if gap and log_progress.is_limited(unmeasured):
            gap += f"; progress is read from the logs of {log_progress.RUNS_MAX} runs only"
    return Listing(
        runs=tuple(summarize(runs, workloads, pods, known)),
        hidden=tuple(sorted(reader.hidden)),
        gap=gap,
    )


def _planned_of_finished(cluster: Cluster, runs: Sequence[Json]) -> dict[str, Progress]:
    """Return the planned steps of finished runs, whose pods and logs may be gone, from their records."""
    finished = [
        run for run in runs if (end := states.ending_of(run)) and end.state == states.FINISHED
    ][: log_progress.RUNS_MAX]
    found = record.read_records(cluster, finished, log_progress.DEADLINE_S)
    return {run_id: Progress(steps=one.planned_steps) for run_id, one in found.items()}


def summary_of(taken: Snapshot, at: Progress = NO_PROGRESS) -> RunSummary:
    return summarize([taken.run], taken.workloads, taken.pods, {taken.run_id: at})[0]


def summarize(
    runs: Sequence[Json],
    workloads: Sequence[Json],
    pods: Sequence[Json],
    known: Mapping[str, Progress],
) -> list[RunSummary]:
    """Return one record per run, in their order. `known`: progress by run id. Pure."""
    owned = _by_owner(workloads)
    mine: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for pod in pods:
        mine[_namespace(pod), objects.label(pod, naming.RUN_ID)].append(pod)
    places = states.places(workloads)
    found = []
    for run in runs:
        key = (_namespace(run), objects.run_id_of(run))
        at = known.get(key[1], NO_PROGRESS)
        found.append(_summary(run, owned, mine.get(key, []), places, at))
    return found


def _summary(
    run: Json,
    owned: Mapping[str, Json],
    pods: Sequence[Json],
    places: Places,
    at: Progress,
) -> RunSummary:
    gangs = summarize_gangs(run, owned, pods, places)
    state = state_of_run(run, gangs, pods)
    shown = next((one for one in gangs if one.state == state), gangs[0])
    version = objects.label(run, naming.RUN_VERSION)
    whole = not groups.has_groups(run)
    return RunSummary(
        run_id=objects.run_id_of(run),
        name=objects.label(run, naming.RUN),
        version=int(version) if version.isdigit() else None,
        team=objects.label(run, naming.TEAM),
        namespace=_namespace(run),
        kind=str(run.get("kind", "")),
        state=state,
        message=shown.message if whole else states.message_of(run, None, state) or shown.message,
        queue=objects.label(run, naming.QUEUE_NAME),
        place=shown.place,
        queued=shown.queued,
        priority=shown.priority,
        nodes=sum(one.nodes for one in gangs),
        ready=sum(one.ready for one in gangs),
        pools=tuple(sorted({pool for one in gangs for pool in one.pools})),
        attempt=max(one.attempt for one in gangs),
        created=str(objects.meta(run).get("creationTimestamp") or ""),
        admitted=min((one.admitted for one in gangs if one.admitted), default=""),
        ended=_ended(run, gangs, owned),
        sweep=objects.label(run, naming.SWEEP),
        progress=_at_the_end(at) if state == states.FINISHED else at,
        groups=() if whole else tuple(gangs),
        groups_total=0 if whole else groups.total(run),
        groups_needed=0 if whole else groups.needed(run),
    )


def _at_the_end(at: Progress) -> Progress:
    """Return the progress of a finished run: it is at its last step, whatever was measured last."""
    return dataclasses.replace(at, step=at.steps) if at.steps else at


def _ended(run: Json, gangs: Sequence[GangSummary], owned: Mapping[str, Json]) -> str:
    """Return when a run ended: with groups that a queue stopped, when the last one did."""
    own = states.ending_of(run)
    if own or not all(one.state in states.ENDED for one in gangs):
        return own.at if own else ""
    endings = (
        states.ending_of(one, owned.get(str(objects.meta(one).get("uid"))))
        for one in groups.gangs(run)
    )
    return max((one.at for one in endings if one), default="")


def _by_owner(workloads: Iterable[Json]) -> dict[str, Json]:
    """Return the newest Workload by the uid of its owner: an older one may still be terminating."""
    found: dict[str, Json] = {}
    for workload in objects.newest_first(workloads):
        for owner in objects.meta(workload).get("ownerReferences") or []:
            found.setdefault(str(owner["uid"]), workload)
    return found


def _namespace(item: Json) -> str:
    return str(objects.meta(item).get("namespace") or "")
