"""Nodes to cordon, because runs have named a rank on them again and again, and the groups that leave them.

A run names a node in its own metrics, which its team can write. So a node counts only while, or shortly after,
a pod of that run was seen on it, at most one node of a pool is cordoned in an hour, and never more than a tenth
of a pool. A group that computed wrong values or hung has ended, and Kueue gives it another node; one that is slow
goes on, and holds up the others."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from infra.domain import naming
from infra.observability import series
from ops import groups, objects
from ops.cluster import Cluster, ClusterError, UnreachableError
from ops.collect import NODES
from ops.metrics import MetricsUnknownError, PrometheusClient, Sample
from ops.objects import Json
from ops.steer.look import Nodes
from trainyard.culprits import CORRUPT, HUNG, SLOW_RANK

REMEMBERED_S: Final = 3600.0
"""For how long a node counts that a run has left, and a verdict that was not repeated."""
SLOW_S: Final = 600.0
"""For how long a rank must have been slow."""
HANGS: Final = 2
"""Hangs of ranks on a node: the first may be the program's."""
PAUSE_S: Final = 3600.0
"""Between two nodes of a pool."""
PART: Final = 0.1
"""Part of a pool that may be cordoned for this, but always one node."""

Run = tuple[str, str]
"""Namespace and run id."""


@dataclass(frozen=True, kw_only=True)
class Named:
    """One verdict of a run."""

    run: Run
    symptom: str
    rank: str
    node: str
    time: float
    """When the rank was last named, in Unix seconds."""


@dataclass
class Record:
    """What the last hour has shown, look by look."""

    held: dict[tuple[Run, str], float] = field(default_factory=dict)
    """When a pod of a run was last seen on a node."""
    named: dict[Named, float] = field(default_factory=dict)
    """When each verdict was first seen here."""
    slow_since: dict[tuple[Run, str, str], float] = field(default_factory=dict)
    """Since when a rank of a run has been named as slow on a node."""

    def look(self, held: Mapping[Run, Iterable[str]], found: Iterable[Named], now: float) -> None:
        """Add a look; `held`: names of the nodes of each run."""
        for run, nodes in held.items():
            self.held |= {(run, node): now for node in nodes}
        self.held = {k: at for k, at in self.held.items() if now - at < REMEMBERED_S}
        self.named = {one: at for one, at in self.named.items() if now - one.time < REMEMBERED_S}
        slow = set()
        for one in found:
            if now - one.time >= REMEMBERED_S or (one.run, one.node) not in self.held:
                continue
            self.named.setdefault(one, now)
            if one.symptom == SLOW_RANK:
                key = (one.run, one.rank, one.node)
                slow.add(key)
                self.slow_since.setdefault(key, one.time)
        self.slow_since = {key: at for key, at in self.slow_since.items() if key in slow}

    def suspects(self, now: float) -> dict[str, str]:
        """Return the nodes to cordon, and why."""
        found: dict[str, str] = {}
        hangs: dict[str, set[tuple[Run, float]]] = {}
        for one in sorted(self.named, key=lambda one: one.time):
            if one.symptom == CORRUPT:
                found.setdefault(one.node, f"rank {one.rank} of {one.run[1]} computed wrong values")
            elif one.symptom == HUNG and one.rank != "-1":
                hangs.setdefault(one.node, set()).add((one.run, one.time))
        for node, times in hangs.items():
            if len(times) >= HANGS:
                found.setdefault(node, f"{len(times)} hangs of ranks on it within an hour")
        for (run, rank, node), since in self.slow_since.items():
            if now - since >= SLOW_S:
                minutes = (now - since) / 60
                text = f"rank {rank} of {run[1]} has been slow for {minutes:.0f} min"
                found.setdefault(node, text)
        return found


def allowed(
    suspects: Mapping[str, str],
    pools: Mapping[str, str],
    cordoned: Mapping[str, float],
    now: float,
) -> list[str]:
    """Return the suspects that may be cordoned now.

    `pools`: the pool of each node that is there; `cordoned`: nodes that were cordoned for this, and when.
    """
    found: list[str] = []
    for node in suspects:
        pool = pools.get(node)
        if pool is None or node in cordoned:
            continue
        size = sum(other == pool for other in pools.values())
        there = [at for other, at in cordoned.items() if pools.get(other) == pool]
        there += [now for other in found if pools[other] == pool]
        recent = any(now - at < PAUSE_S for at in there)
        if not recent and len(there) < max(1, int(PART * size)):
            found.append(node)
    return found


def parse(samples: Iterable[Sample]) -> list[Named]:
    return [
        Named(
            run=(one.labels.get("namespace", ""), one.labels.get("run_id", "")),
            symptom=one.labels.get("symptom", ""),
            rank=one.labels.get("culprit_rank", ""),
            node=one.labels.get("culprit_node", ""),
            time=one.value,
        )
        for one in samples
    ]


class Cordons:
    """What was named in the last hour, and what follows from it."""

    def __init__(
        self,
        cluster: Cluster,
        show: Callable[[str], None],
        may_write: Callable[[], None],
        *,
        dry_run: bool,
    ) -> None:
        """`may_write` raises ClusterError where another process decides."""
        self._cluster, self._show, self._may_write = cluster, show, may_write
        self._dry_run = dry_run
        self._record = Record()

    def step(
        self,
        prometheus: PrometheusClient,
        items: Sequence[Json],
        held: Mapping[Run, set[str]],
        nodes: Nodes,
        now: float,
    ) -> None:
        """Look once, and cordon what is due. Raises UnreachableError.

        `items`: all nodes; `held`: UIDs of each run's.
        """
        try:
            found = parse(prometheus.query(str(series.CULPRIT_TIME)))
        except MetricsUnknownError:
            return
        names = {uid: name for name, uid in nodes.by_name.items()}
        self._record.look({run: {names[u] for u in uids} for run, uids in held.items()}, found, now)
        pools = {objects.name(one): objects.label(one, naming.POOL) for one in items}
        closed = {objects.name(one): one for one in items if _is_closed(one)}
        cordoned = {name: note[0] for name, one in closed.items() if (note := _note(one))}
        suspects = {n: why for n, why in self._record.suspects(now).items() if n not in closed}
        for name in allowed(suspects, pools, cordoned, now):
            self._write(name, suspects[name], now)

    def _write(self, name: str, why: str, now: float) -> None:
        self._show(f"node {name}: cordoned: {why}")
        if self._dry_run:
            return
        self._may_write()
        note = json.dumps({"at": now, "why": why})
        change = {
            "metadata": {"annotations": {naming.CORDONED: note}},
            "spec": {"unschedulable": True},
        }
        try:
            self._cluster.patch(NODES, name, change)
        except UnreachableError:
            raise
        except ClusterError as error:
            self._show(f"node {name}: not cordoned: {error}")


def because(nodes: Sequence[Json]) -> dict[str, str]:
    """Return why nodes were cordoned that are still closed, by UID; without those that others have cordoned."""
    return {
        str(objects.meta(one).get("uid")): f"node {objects.name(one)}: {note[1]}"
        for one in nodes
        if _is_closed(one) and (note := _note(one))
    }


def _is_closed(node: Json) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def _note(node: Json) -> tuple[float, str] | None:
    """Return when this program has cordoned a node, and why; None for nodes that others have cordoned."""
    text = (objects.meta(node).get("annotations") or {}).get(naming.CORDONED)
    if not text:
        return None
    try:
        found = json.loads(text)
        return float(found["at"]), str(found["why"])
    except (ValueError, TypeError, KeyError):
        return 0.0, "its ranks were named"


def leaving(
    workloads: Iterable[Json], nodes: Mapping[str, Collection[str]], cordoned: Collection[str]
) -> dict[str, int]:
    """Return the Workloads to queue again, as `NAMESPACE/NAME`, and how many groups go on without each.

    `nodes`: UIDs of the nodes of each Workload, by its name; `cordoned`: UIDs of nodes. A group stays where fewer
    others take part than the run needs: it would only save and wait.
    """
    runs: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for one in workloads:
        if groups.number_of(one) is not None and _is_admitted(one):
            runs[str(objects.meta(one).get("namespace")), objects.run_id_of(one)].append(one)
    closed, found = set(cordoned), dict[str, int]()
    for members in runs.values():
        stay = {
            objects.full_name(one) for one in members if objects.condition_is_true(one, "PodsReady")
        }
        for one in members:
            name = objects.full_name(one)
            others = stay - {name}
            if closed & set(nodes.get(name, ())) and len(others) >= groups.needed(one):
                found[name] = len(others)
                stay = others
    return found


def _is_admitted(workload: Json) -> bool:
    active = (workload.get("spec") or {}).get("active", True)
    return bool(active and objects.status(workload).get("admission"))
