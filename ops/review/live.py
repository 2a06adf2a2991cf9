"""What a change costs now: nodes of the pools that it changes, and what the runs that it stops have not saved."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from infra.domain import naming, prices
from ops import collect, groups, objects
from ops.cluster import Cluster, ForbiddenError, UnknownCallerError, UnreachableError
from ops.collect import NODES, NoSuchRunError
from ops.metrics import PrometheusClient
from ops.names import AmbiguousNameError
from ops.objects import Json
from ops.review import consequences, money
from ops.review.consequences import Review
from ops.review.impacts import Place, place_of
from ops.review.money import Pool
from ops.review.steps import Change, Preview
from ops.runs import details, states

Labels = Mapping[str, str]
_ENDS: Final = ("stopped", "restarted")


@dataclass(frozen=True, kw_only=True)
class Unsaved:
    """What a run that ends has computed since its last checkpoint."""

    run: str
    gpus: int
    hours: float | None
    """Since the checkpoint, or since it was admitted if that is later; None: not known; 0 if it does not run."""
    step: int | None = None
    """Of the checkpoint; None: there is none, or it is not known."""
    gap: str = ""
    """Why it is not known."""

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours at most: a program that saves when it is told to stop loses less."""
        return None if self.hours is None else self.gpus * self.hours

    def __str__(self) -> str:
        if self.gpu_hours is None:
            return f"not known: {self.gap}"
        if not self.hours:
            return "it does not run now"
        since = "no checkpoint" if self.step is None else f"the checkpoint of step {self.step}"
        return f"at most {self.gpu_hours:.1f} GPU-hours ({self.gpus} GPUs since {since})"


@dataclass(frozen=True, kw_only=True)
class Live:
    """The state of the stack's cluster now."""

    nodes: Mapping[str, int]
    """By pool."""
    usd_per_hour: float | None
    """Difference that the change makes with the nodes that are there; None: not known."""
    unsaved: tuple[Unsaved, ...]
    gaps: tuple[str, ...] = ()
    """What is not known: it may not be read, or the cluster does not answer."""
    placed: bool = False
    """Whether it is known where all runs are, submitted ones included."""


def read(
    cluster: Cluster,
    preview: Preview,
    found: Review,
    prometheus: PrometheusClient,
    now: dt.datetime,
) -> tuple[Live, Review]:
    """Read the nodes and the runs that the change ends; return them, and the review of these runs.

    What the caller may not read is a gap, not an error, and so is a cluster that does not answer.
    """
    gaps: list[str] = []
    nodes: list[Json] | None = None
    try:
        try:
            nodes = cluster.items(NODES, None)
        except ForbiddenError:
            gaps.append("Nodes: your role may not list them")
        labels = [objects.meta(one).get("labels") or {} for one in nodes or ()]
        sizes = Counter(_pools(labels))
        placed, reached = False, found
        if found.impacts and nodes is not None:
            try:
                there = read_places(cluster, nodes)
                placed = True
            except ForbiddenError:
                gaps.append("Runs on the nodes that go: your role may not list runs and their pods")
                there = consequences.places(preview.steps)
            reached = consequences.with_places(found, there, sizes)
        ends = [one.name for one in reached.consequences if one.what == "run" and one.does in _ENDS]
        live = Live(
            nodes=dict(sorted(sizes.items())),
            usd_per_hour=None if nodes is None else difference(preview, labels),
            unsaved=tuple(_unsaved(cluster, ends, prometheus, now)),
            gaps=tuple(gaps),
            placed=placed,
        )
        return live, reached
    except (UnreachableError, UnknownCallerError) as error:
        gap = f"Live state: {error}"
        return Live(nodes={}, usd_per_hour=None, unsaved=(), gaps=(gap,)), found


def _pools(nodes: Sequence[Labels]) -> Iterator[str]:
    return (one[naming.POOL] for one in nodes if one.get(naming.POOL))


def _unsaved(
    cluster: Cluster, ends: Sequence[str], prometheus: PrometheusClient, now: dt.datetime
) -> Iterator[Unsaved]:
    if not ends:
        return
    try:
        known = collect.list_runs(cluster)
    except ForbiddenError:
        gap = "your role may not list runs"
        yield from (Unsaved(run=name, gpus=0, hours=None, gap=gap) for name in ends)
        return
    for name in ends:
        try:
            run = collect.find_run(known, name)
        except (NoSuchRunError, AmbiguousNameError) as error:
            several = isinstance(error, AmbiguousNameError)
            gap = "several teams have one" if several else "it is not on this cluster"
            yield Unsaved(run=name, gpus=0, hours=None, gap=gap)
        else:
            taken = collect.take_snapshot(cluster, run, now, prometheus)
            yield unsaved(name, details.details_of(cluster, taken, prometheus), taken.pods, now)


def unsaved(name: str, found: details.Details, pods: Sequence[Json], now: dt.datetime) -> Unsaved:
    """Return what a run has computed since its checkpoint, or since the start of its attempt. Pure."""
    running = [pod for pod in pods if objects.status(pod).get("phase") == "Running"]
    gpus = int(sum(objects.requests(pod["spec"]).get(naming.GPU, Decimal(0)) for pod in running))
    if found.summary.over or not running:
        return Unsaved(run=name, gpus=gpus, hours=0.0)
    if not found.summary.admitted:
        return Unsaved(run=name, gpus=gpus, hours=None, gap="its Workload may not be read")
    # A checkpoint of an earlier attempt says nothing of the hours between the attempts.
    since = max(filter(None, (found.summary.admitted, found.checkpoints.saved)))
    hours = (now - dt.datetime.fromisoformat(since)).total_seconds() / 3600
    return Unsaved(run=name, gpus=gpus, hours=max(0.0, hours), step=found.checkpoints.step)


def difference(preview: Preview, nodes: Sequence[Labels]) -> float | None:
    """Return USD per hour that the change adds to what is paid now; None where a price is not known. Pure.

    A pool keeps its number of nodes within its new limits, and new nodes are bought as it prefers; reserved ones
    cost the same whether they run or not, and services what they cost idle.
    """
    parts: list[float | None] = []
    pools = money.pools(preview)
    for step in preview.steps:
        if step.urn in pools:
            old, new = pools[step.urn]
            if old != new:
                name = (new or old or _NO_POOL).name
                mine = [one for one in nodes if one.get(naming.POOL) == name]
                parts.append(_pool_difference(old, new, mine, preview.region))
        elif step.change is not Change.SAME:
            parts.append(money.difference(step, None, preview.region).idle)
    return prices.total(parts)


_NO_POOL: Final = Pool(name="", types=(), bought=(), min=0, max=0)


def _pool_difference(
    old: Pool | None, new: Pool | None, nodes: Sequence[Labels], region: str
) -> float | None:
    paid = _paid_now(old, nodes, region)
    if paid is None:
        return None
    if new is None:
        return -paid
    each = money.preferred_usd_per_hour(new, region)
    if new.reserved:
        return None if each is None else (new.max or 0) * each - paid
    number = max(new.min, len(nodes) if new.max is None else min(len(nodes), new.max))
    same = old is not None and (old.types, old.bought) == (new.types, new.bought)
    if same and number <= len(nodes):
        return paid * (number / len(nodes) - 1) if nodes else 0.0
    if each is None:
        return None
    return (number - len(nodes)) * each if same else number * each - paid


def _paid_now(pool: Pool | None, nodes: Sequence[Labels], region: str) -> float | None:
    """Return what a pool's nodes cost now; of a reservation all of them, whether they run or not."""
    if pool is not None and pool.reserved:
        each = money.preferred_usd_per_hour(pool, region)
        return None if each is None else (pool.max or 0) * each
    return prices.total(prices.node_usd_per_hour(one) for one in nodes)


def read_places(cluster: Cluster, nodes: Sequence[Json]) -> list[Place]:
    """Return the places of all runs that did not end, submitted ones included. Raises ForbiddenError."""
    runs = collect.list_runs(cluster)
    return places(runs, cluster.items(collect.PODS, None, naming.RUN_ID), nodes)


def places(runs: Iterable[Json], pods: Iterable[Json], nodes: Iterable[Json]) -> list[Place]:
    """Return where each run that did not end is: the pools and nodes of its live pods. Pure."""
    pool_of = {objects.name(node): objects.label(node, naming.POOL) for node in nodes}
    held: Mapping[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for pod in states.live_pods(list(pods)):
        node = str(pod["spec"].get("nodeName") or "")
        key = (str(objects.meta(pod).get("namespace")), objects.label(pod, naming.RUN_ID))
        if pool_of.get(node):
            held[key].add((pool_of[node], node))
    return [
        dataclasses.replace(one, nodes=frozenset(held[one.namespace, one.run]))
        for run in runs
        if not all(states.ending_of(gang) for gang in groups.gangs(run))
        for one in [place_of(objects.run_id_of(run), run)]
    ]
