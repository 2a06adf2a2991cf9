"""One round of the admission benchmark: queue a backlog, release it, and wait until it has finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Final

from bench import writes
from bench.api import Api, Json, run_parallel, wait_deleted, wait_until
from bench.embedded import Embedded
from bench.fleet import Arm, Fleet
from bench.observer import PODS, Observer
from bench.workloads import WorkloadFinisher
from infra.domain import naming

QUEUES: Final = f"/apis/{naming.KUEUE_API}"
SETTLE_S: Final = 1800.0
"""Longest wait for a configuration to be in force, or for objects to be gone."""
CATCH_UP_S: Final = 60.0
POLL_S: Final = 0.2
STALL_S: Final = 180.0
"""A round in which nothing is admitted or finished for so long has failed."""

_KINDS: Final = (
    "jobset.x-k8s.io/v1alpha2/jobsets",
    "batch/v1/jobs",
    f"{naming.KUEUE_API}/workloads",
)
"""Kinds of a load; Workloads owned by the others are deleted with them."""

Progress = Callable[[int], None]
"""Receives the number of finished gangs repeatedly."""


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """Results of one round."""

    arm: str
    gangs: int
    admitted_per_s: float
    """Gangs over the time from the release of the queues to the last first admission."""
    admitted_after_s: tuple[float, ...]
    """When each gang was first admitted, from the release on, ascending."""
    finished_per_s: float
    writes: Mapping[str, float]
    """Writes per gang by resource, from the release to the end; see `writes.by_resource`."""
    evictions: int
    late_pods: int
    """See `Ledger.late_pods`."""
    violations: int
    messages: tuple[str, ...]

    @property
    def writes_per_gang(self) -> float:
        """Return writes to all resources."""
        return sum(self.writes.values())


def install_fleet(api: Api, made: Fleet, more: Iterable[Json]) -> None:
    """Nodes and all that is there for every configuration; waits until pods can be admitted."""
    for manifest in [*made.common, *more]:
        api.apply(manifest)
    # A server-side apply would drop a new Node's status.
    run_parallel(api.create, made.nodes, lambda: None)
    wait_until(lambda: _ready_nodes(api) >= len(made.nodes), "all nodes are ready", SETTLE_S, 1.0)


def _ready_nodes(api: Api) -> int:
    nodes = api.get("/api/v1/nodes")["items"]
    return sum(not node["spec"].get("unschedulable") and _is_ready(node) for node in nodes)


def _is_ready(node: Json) -> bool:
    taints = [t["key"] for t in node["spec"].get("taints") or []]
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions") or []}
    return conditions.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints


def switch_arm(api: Api, cluster: Embedded, arm: Arm, others: Sequence[Arm]) -> None:
    """Put this configuration in the others' place; its queues hold until `release`."""
    gone = [manifest for other in others for manifest in reversed(other.objects)]
    for manifest in gone:
        api.delete(api.path(manifest))
    wait_deleted(api, map(api.path, gone), SETTLE_S)
    cluster.restart_kueue(dict(arm.kueue))
    for manifest in arm.held():
        api.apply(manifest)
    wait_until(lambda: _queues_hold(api, arm), f"the queues of {arm.name} hold", SETTLE_S)


def _queues_hold(api: Api, arm: Arm) -> bool:
    found = {q["metadata"]["name"]: q for q in api.get(f"{QUEUES}/clusterqueues")["items"]}
    return all(
        any(
            condition["type"] == "Active" and condition["reason"] == "Stopped"
            for condition in (found.get(name, {}).get("status") or {}).get("conditions") or []
        )
        for name in arm.cluster_queues
    )


def release_queues(api: Api, arm: Arm) -> None:
    """Let the queues admit."""
    for name in arm.cluster_queues:
        api.merge(f"{QUEUES}/clusterqueues/{name}", {"spec": {"stopPolicy": "None"}})


def run_round(
    api: Api,
    arm: Arm,
    load: Sequence[Json],
    gpus: dict[str, int],
    notify: Progress,
    *,
    with_pods: bool = True,
) -> RoundResult:
    """Queue the load, release it, and wait until all of it has finished.

    Without pods the load is Workloads, and each is ended as soon as it is admitted.
    """
    observer = Observer(api, gpus, with_pods=with_pods)
    finisher = None if with_pods else WorkloadFinisher(api, observer.workloads)
    observer.on_workload = finisher.on_workload if finisher else None
    observer.start()
    try:
        run_parallel(api.create, load, lambda: None)
        wait_until(
            lambda: observer.count(lambda gang: gang.size > 0) == len(load), "all queued", SETTLE_S
        )
        before = writes.by_resource(api.text("/metrics"))
        start = monotonic()
        release_queues(api, arm)
        wait_finished(observer, len(load), notify, STALL_S)
        after = writes.by_resource(api.text("/metrics"))
        if with_pods:
            observer.catch_up(CATCH_UP_S)
    finally:
        observer.stop()
        if finisher:
            finisher.close()
    written = {name: number / len(load) for name, number in (after - before).items()}
    return _result(observer, arm, len(load), start, written)


def wait_finished(observer: Observer, gangs: int, notify: Progress, stall_s: float) -> None:
    """Wait until so many gangs have finished. Raises TimeoutError when none does for `stall_s`."""
    last, moved = -1, monotonic()
    while last < gangs:
        finished = observer.count(lambda gang: gang.finished is not None)
        notify(finished)
        if finished != last:
            last, moved = finished, monotonic()
        elif monotonic() - moved > stall_s:
            raise TimeoutError(
                f"{last} of {gangs} gangs finished, then none for {stall_s:.0f} s;"
                f" left: {', '.join(observer.unfinished())}"
            )
        sleep(POLL_S)


def _result(
    observer: Observer, arm: Arm, count: int, start: float, written: Mapping[str, float]
) -> RoundResult:
    with observer.lock:
        checker = observer.checker
        checker.close()
        gangs = checker.gangs.values()
        admitted = sorted((gang.first_admitted or start) - start for gang in gangs)
        finished = max(gang.finished or start for gang in gangs) - start
        return RoundResult(
            arm=arm.name,
            gangs=count,
            admitted_per_s=count / admitted[-1],
            admitted_after_s=tuple(admitted),
            finished_per_s=count / finished,
            writes=written,
            evictions=sum(gang.evictions.total() for gang in gangs),
            late_pods=checker.late_pods,
            violations=checker.violations,
            messages=tuple(checker.messages),
        )


def delete_load(api: Api) -> None:
    """Remove all gangs, and wait until nothing of them is left."""
    # One by one, since the server deletes the members of a collection one after the other.
    for kind in _KINDS:
        found = api.list_names(f"/apis/{kind}")
        run_parallel(api.delete, [_object_path(kind, *place) for place in found], lambda: None)
    paths = (PODS, "/apis/batch/v1/jobs", f"{QUEUES}/workloads")
    wait_until(
        lambda: not any(_any_left(api, path) for path in paths), "the round is cleared", SETTLE_S
    )


def _object_path(kind: str, namespace: str, name: str) -> str:
    version, _, plural = kind.rpartition("/")
    return f"/apis/{version}/namespaces/{namespace}/{plural}/{name}"


def _any_left(api: Api, path: str) -> bool:
    # Controllers are pods, too, without the label of a run.
    mine = {"labelSelector": naming.RUN_ID} if path == PODS else {}
    return bool(api.get(path, limit="1", **mine)["items"])
