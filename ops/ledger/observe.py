"""Turn what a cluster and its Prometheus show at one moment into facts. Pure, except for `look`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from infra.domain import naming, prices, quantity
from infra.observability import series
from ops import groups, objects, placement
from ops.cluster import Cluster
from ops.collect import NODES, PODS, WORKLOADS
from ops.ledger.model import Bucket, Cause, Fact, Fault, Hold, Node, Phase, Wait
from ops.metrics import MetricsUnknownError, PrometheusClient
from ops.objects import Json
from ops.promql import Expression, Regex, select
from ops.readable import Reader
from ops.runs import states

_GONE_TYPES: Final = (Node, Hold, Wait, Fault)

_EVICTED: Final[Mapping[str, Cause]] = {
    "Preempted": Cause.PREEMPTION,
    "NodeFailures": Cause.NODE,
    "ClusterQueueStopped": Cause.STOP,
    "LocalQueueStopped": Cause.STOP,
    "Deactivated": Cause.STOP,
    "MaximumExecutionTimeExceeded": Cause.STOP,
}
"""By reason of a Workload's condition Evicted."""

_HEALTH: Final = ("Ready", "AcceleratedHardwareReady")
"""Conditions of a node that can run training: the kubelet's, and that of EKS' node monitoring agent."""

COUNTERS: Final[Mapping[str, series.Series]] = {
    "steps": series.STEPS,
    "tokens": series.TOKENS,
    "step_s": series.STEP_SECONDS,
    "stall_s": series.CHECKPOINT_STALL_SECONDS,
    "step": series.STEP,
    "attempt": series.ATTEMPT,
}
"""Series of the leading rank from which a phase follows, by the key that `phase_of` reads."""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What is there at one moment."""

    now: float
    """Unix seconds."""
    nodes: Sequence[Json] = ()
    pods: Sequence[Json] = ()
    """Of runs."""
    workloads: Sequence[Json] = ()
    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By run id, the counters of its current attempt by the keys above."""
    hidden: frozenset[str] = frozenset()
    """Plurals of what may not be read."""
    gap: str = ""
    """What else is not known, and why."""


def look(
    cluster: Cluster,
    prometheus: PrometheusClient | None,
    now: float,
    namespace: str | None = None,
) -> Sight:
    """Read the cluster and its metrics. What may not be read is left out.

    `namespace`: read the runs of this one only; None: of all.
    """
    reader = Reader(cluster)
    nodes, workloads = reader.items(NODES), reader.items(WORKLOADS, namespace)
    pods = reader.items(PODS, namespace, naming.RUN_ID)
    where = {"namespace": namespace} if namespace else {"run_id": Regex(".+")}
    counters: dict[str, dict[str, float]] = {}
    gap = "" if prometheus else "no Prometheus"
    try:
        for key, one in COUNTERS.items() if prometheus else ():
            assert prometheus
            for sample in prometheus.query(
                Expression("max by (run_id) ({})", select(one, **where))
            ):
                counters.setdefault(sample.labels["run_id"], {})[key] = sample.value
    except MetricsUnknownError as error:
        gap = f"no metrics: {error}"
    return Sight(
        now=now,
        nodes=nodes,
        pods=pods,
        workloads=workloads,
        counters=counters,
        hidden=frozenset(reader.hidden),
        gap=gap,
    )


def facts(sight: Sight, known: Iterable[Fact] = ()) -> list[Fact]:
    """Return the facts of a sight, and the ends of known ones that are no longer to be seen."""
    before = {fact.identity: fact for fact in known}
    seen: list[Fact] = [*_nodes(sight), *_faults(sight), *_holds(sight, before), *_waits(sight)]
    seen += _phases(sight, before)
    there = {fact.identity for fact in seen}
    return [*seen, *_gone(sight, before, there)]


def _gone(
    sight: Sight, before: Mapping[tuple[str, ...], Fact], there: set[tuple[str, ...]]
) -> Iterator[Fact]:
    """End what was there and is not: between two looks, so at the later one."""
    sources = {Node: "nodes", Fault: "nodes", Hold: "pods", Wait: "workloads"}
    for identity, fact in before.items():
        if not isinstance(fact, _GONE_TYPES) or fact.end is not None or identity in there:
            continue
        if sources[type(fact)] not in sight.hidden:
            yield dataclasses.replace(fact, end=max(sight.now, fact.start))


def _nodes(sight: Sight) -> Iterator[Node]:
    for node in sight.nodes:
        pool = objects.label(node, naming.POOL)
        if not pool:
            continue
        labels = objects.meta(node).get("labels") or {}
        yield Node(
            uid=_uid(node),
            pool=pool,
            start=_time(objects.meta(node).get("creationTimestamp"), sight.now),
            purchase=(prices.purchase_of(labels) or ""),
            usd_per_hour=prices.node_usd_per_hour(labels),
            price_date=prices.node_price_date(labels),
            gpus=float(
                quantity.parse((objects.status(node).get("allocatable") or {}).get(naming.GPU, 0))
            ),
        )


def _faults(sight: Sight) -> Iterator[Fault]:
    for node in sight.nodes:
        for kind in _HEALTH if objects.label(node, naming.POOL) else ():
            found = objects.condition(node, kind)
            if found and found.get("status") != "True":
                start = _time(found.get("lastTransitionTime"), sight.now)
                cause = str(found.get("reason") or f"not {kind}")
                yield Fault(node=_uid(node), start=start, cause=cause)
                break


def _holds(sight: Sight, before: Mapping[tuple[str, ...], Fact]) -> Iterator[Hold]:
    nodes = {objects.name(node): node for node in sight.nodes}
    for pod in sight.pods:
        node = nodes.get(str((pod.get("spec") or {}).get("nodeName") or ""))
        if node is None or not objects.label(node, naming.POOL):
            continue
        scheduled = objects.condition(pod, "PodScheduled").get("lastTransitionTime")
        start = _time(scheduled or objects.meta(pod).get("creationTimestamp"), sight.now)
        yield Hold(
            uid=_uid(pod),
            node=_uid(node),
            run=objects.label(pod, naming.RUN_ID),
            team=_team(pod),
            start=start,
            end=_pod_end(pod, start, sight.now),
            share=_share(pod, node),
            group=groups.number_of(pod),
            member=_member(pod, before.get((Hold.KIND, _uid(pod)))),
        )


def _member(pod: Json, known: Fact | None) -> float | None:
    """Return since when a group's pod takes part, as its readiness says; also after it ended."""
    if groups.number_of(pod) is None:
        return None
    if isinstance(known, Hold) and known.member is not None:
        return known.member
    ready = objects.condition(pod, "Ready")
    since = objects.time(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None
    return since.timestamp() if since else None


def _pod_end(pod: Json, start: float, now: float) -> float | None:
    """Return when an ended pod's last container ended; None while it runs."""
    if objects.status(pod).get("phase") not in ("Succeeded", "Failed"):
        return None
    ended = [objects.state(one, "terminated").get("finishedAt") for one in objects.containers(pod)]
    return max([start, *(_time(text, now) for text in ended if text)]) if any(ended) else now


def _share(pod: Json, node: Json) -> float:
    """Return the pod's part of the node: of its GPUs; of its cores, where it has none."""
    requests = objects.requests(pod["spec"])
    there = objects.status(node).get("allocatable") or {}
    for resource in (naming.GPU, "cpu"):
        whole = float(quantity.parse(there.get(resource, 0)))
        if whole > 0 and (requests.get(resource) or resource == "cpu"):
            return min(1.0, float(requests.get(resource, 0)) / whole)
    return 0.0


def _waits(sight: Sight) -> Iterator[Wait]:
    pools = {
        objects.label(node, naming.POOL): objects.meta(node).get("labels") or {}
        for node in sight.nodes
        if objects.label(node, naming.POOL)
    }
    for workload in sight.workloads:
        created = _time(objects.meta(workload).get("creationTimestamp"), sight.now)
        evicted = objects.condition(workload, "Evicted").get("lastTransitionTime")
        admitted = objects.condition(workload, "Admitted")
        if objects.condition_is_true(workload, "Finished"):
            continue
        ended = None
        if admitted.get("status") == "True":
            if evicted:
                continue  # When it began to wait again is known only from an earlier look.
            ended = _time(admitted.get("lastTransitionTime"), sight.now)
        sets = (workload.get("spec") or {}).get("podSets") or []
        specs = [(one.get("template") or {}).get("spec") or {} for one in sets]
        yield Wait(
            run=objects.run_id_of(workload),
            team=_team(workload),
            start=_time(evicted, created) if ended is None else created,
            end=ended,
            pools=tuple(
                sorted(
                    name
                    for name, labels in pools.items()
                    if specs
                    and all(placement.matches(s, labels, known_keys_only=True) for s in specs)
                )
            ),
            nodes=float(sum(int(one.get("count", 1)) for one in sets)),
            group=groups.number_of(workload),
        )


def _phases(sight: Sight, before: Mapping[tuple[str, ...], Fact]) -> Iterator[Phase]:
    """Return the current attempt of each run that reports steps, and why earlier ones ended."""
    for run, counters in sight.counters.items():
        if counters.get("steps") and "step_s" in counters:
            attempt = max(1, int(counters.get("attempt", 1)))
            old = before.get((Phase.KIND, run, str(attempt)))
            yield phase_of(
                run, attempt, counters, sight.now, old if isinstance(old, Phase) else None
            )
    # Of a run with groups the one that has ended says how.
    order = sorted(sight.workloads, key=lambda one: objects.condition_is_true(one, "Finished"))
    workloads = {objects.run_id_of(one): one for one in order}
    for fact in before.values():
        if isinstance(fact, Phase) and not fact.ended:
            cause = _cause(fact, workloads.get(fact.run), sight, before)
            if cause is not None:
                yield dataclasses.replace(fact, ended=cause.value)


def phase_of(
    run: str, attempt: int, counters: Mapping[str, float], now: float, old: Phase | None = None
) -> Phase:
    """Return the phase of an attempt by its counters at a time. `old`: as it was known before.

    `counters` has the keys of COUNTERS, at least `steps` and `step_s`.
    """
    stall = counters.get("stall_s", 0.0)
    made = int(counters["steps"])
    begun = now - counters["step_s"] - stall
    return Phase(
        run=run,
        attempt=attempt,
        start=min(old.start, begun) if old else begun,
        # Without a further step it may hang, be saving for the last time, or have ended.
        end=old.end if old and old.steps == made else now,
        seconds={Bucket.SAVE.value: stall},
        steps=made,
        tokens=counters.get("tokens", 0.0),
        first_step=int(counters.get("step", made)) - made + 1,
    )


def _cause(
    phase: Phase,
    workload: Json | None,
    sight: Sight,
    before: Mapping[tuple[str, ...], Fact],
) -> Cause | None:
    """Return why an attempt ended; None while it goes on, or where that is not known."""
    attempt = sight.counters.get(phase.run, {}).get("attempt")
    if attempt is not None and attempt <= phase.attempt:
        return None
    if _lost_spot_node(phase, sight, before):
        return Cause.RECLAIM
    ending = states.ending_of(None, workload)
    if attempt is None and ending and ending.state != states.STOPPED:
        return Cause.DONE if ending.state == states.FINISHED else Cause.FAILURE
    evicted = objects.condition(workload, "Evicted")
    if evicted and _time(evicted.get("lastTransitionTime"), 0.0) >= phase.start:
        return _EVICTED.get(str(evicted.get("reason")), Cause.UNKNOWN)
    return None if attempt is None else Cause.UNKNOWN


def _lost_spot_node(phase: Phase, sight: Sight, before: Mapping[tuple[str, ...], Fact]) -> bool:
    """Whether a spot node that the run held during this attempt no longer exists."""
    if "nodes" in sight.hidden:
        return False
    there = {_uid(node) for node in sight.nodes}
    for fact in before.values():
        if not isinstance(fact, Hold) or fact.run != phase.run:
            continue
        node = before.get((Node.KIND, fact.node))
        during = fact.start <= phase.end and (fact.end is None or fact.end >= phase.end)
        spot = isinstance(node, Node) and node.purchase == prices.Purchase.SPOT
        if during and spot and fact.node not in there:
            return True
    return False


def _team(item: Json) -> str:
    namespace = str(objects.meta(item).get("namespace") or "")
    return objects.label(item, naming.TEAM) or namespace.removeprefix(naming.namespace(""))


def _uid(item: Json) -> str:
    return str(objects.meta(item).get("uid") or objects.name(item))


def _time(text: str | None, default: float) -> float:
    found = objects.time(text)
    return found.timestamp() if found else default
