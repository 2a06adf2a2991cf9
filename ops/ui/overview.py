"""What the pages of runs, queues and nodes show, read at one moment in a bounded number of requests."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from infra.domain import naming, prices, quantity
from ops import metrics, objects, quota
from ops.cluster import Cluster
from ops.collect import CLUSTER_QUEUES, EVENTS, list_runs
from ops.ledger import observe
from ops.ledger.model import Fact
from ops.metrics import PrometheusClient
from ops.objects import Json
from ops.quota import Quota, QuotaHolder
from ops.readable import Reader
from ops.runs import states
from ops.runs.listing import Listing, RunSummary, read_listing
from ops.ui import spending
from ops.ui.spending import Spending


@dataclass(frozen=True, kw_only=True)
class QueueView:
    name: str
    team: str
    stopped: str
    """Stop policy; empty: it admits runs."""
    flavors: Mapping[str, Quota]
    """Of GPUs, by flavor."""
    holders: Sequence[QuotaHolder]
    """Runs that hold GPUs; of other teams only where they may be read."""
    waiting: Sequence[RunSummary]
    """In the order in which Kueue tries them."""
    waiting_gpus: Decimal
    size: int
    """GPUs of the nodes of its pools that are there."""

    @property
    def bar(self) -> Sequence[tuple[str, Decimal]]:
        """Kind and GPUs of each part of its picture: own, borrowed, what is left of the guarantee, waiting."""
        flavors = self.flavors.values()
        used = sum((one.used for one in flavors), Decimal(0))
        borrowed = sum((one.borrowed for one in flavors), Decimal(0))
        left = sum((max(one.nominal - one.used, Decimal(0)) for one in flavors), Decimal(0))
        parts = (
            ("held", used - borrowed),
            ("borrowed", borrowed),
            ("left", left),
            ("waiting", self.waiting_gpus),
        )
        return [part for part in parts if part[1]]

    @property
    def scale(self) -> Decimal:
        """GPUs that the whole width stands for."""
        return max(Decimal(self.size), sum((gpus for _, gpus in self.bar), Decimal(0)), Decimal(1))


@dataclass(frozen=True, kw_only=True)
class NodeView:
    name: str
    pool: str
    instance_type: str
    zone: str
    purchase: str
    state: str
    """`ready`, `cordoned`, `not ready`, or the taint of a reclaim."""
    gpus: int
    gpus_used: int
    """Of runs that the caller may read."""
    runs: Sequence[str]
    usd_per_hour: float | None
    price_date: str
    created: str

    @property
    def kind(self) -> str:
        """What its part of the pool's picture shows: `held` by a run, `left` free, or `away`."""
        return "away" if self.state != READY else "held" if self.runs else "left"


@dataclass(frozen=True, kw_only=True)
class PoolView:
    name: str
    nodes: Sequence[NodeView]
    usd_per_hour: float | None
    """Of all its nodes; None: a price is not known."""

    @property
    def price_dates(self) -> list[str]:
        return sorted({one.price_date for one in self.nodes} - {""})

    @property
    def ready(self) -> int:
        return sum(one.state == READY for one in self.nodes)

    @property
    def gpus(self) -> int:
        return sum(one.gpus for one in self.nodes)

    @property
    def gpus_used(self) -> int:
        return sum(one.gpus_used for one in self.nodes)


@dataclass(frozen=True, kw_only=True)
class NodeEvent:
    """A warning about a node, such as the notice of a reclaim."""

    node: str
    reason: str
    message: str
    time: str


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Everything but the details of single runs."""

    now: dt.datetime
    listing: Listing
    runs: Sequence[Json]
    spent: Mapping[str, Spending]
    queues: Sequence[QueueView]
    pools: Sequence[PoolView]
    node_events: Sequence[NodeEvent]
    hidden: Sequence[str]
    """Plurals that the caller may not read."""

    @property
    def metrics_note(self) -> str:
        """Why there are no metrics, and what to do; empty if there are."""
        gap = self.listing.gap
        return f"{gap}; {metrics.HOW_TO_PASS}" if gap else ""


READY = "ready"
_POOL_TAINT = "dedicated"
"""Key of the taint that keeps other pods off GPU nodes."""


def read_overview(
    cluster: Cluster,
    namespace: str | None,
    prometheus: PrometheusClient,
    recorded: Sequence[Fact],
    now: dt.datetime,
) -> Overview:
    """Read runs, queues and nodes. Raises ForbiddenError if runs may not be listed there."""
    listing = read_listing(cluster, namespace, prometheus)
    reader = Reader(cluster)
    sight = observe.look(cluster, None, now.timestamp(), namespace)
    # Who waits decides what idle nodes are booked on, and that is not shown.
    facts = observe.facts(dataclasses.replace(sight, workloads=()), recorded)
    merged = {f.identity: f for f in (*recorded, *facts)}
    events = [
        e for e in reader.items(EVENTS) if (e.get("involvedObject") or {}).get("kind") == "Node"
    ]
    pools = pool_views(sight.nodes, sight.pods)
    return Overview(
        now=now,
        listing=listing,
        runs=list_runs(cluster, namespace),
        spent=spending.spending_by_run(list(merged.values()), now.timestamp()),
        queues=queue_views(reader.items(CLUSTER_QUEUES), sight.workloads, listing.runs, pools),
        pools=pools,
        node_events=node_events(events),
        hidden=sorted({*listing.hidden, *sight.hidden, *reader.hidden}),
    )


def queue_views(
    cluster_queues: Sequence[Json],
    workloads: Sequence[Json],
    runs: Sequence[RunSummary],
    pools: Sequence[PoolView],
) -> list[QueueView]:
    found = []
    for queue in sorted(cluster_queues, key=objects.name):
        team = quota.team_of(queue)
        mine = [w for w in workloads if quota.team_of(w) == team]
        waiting = [one for one in runs if one.team == team and one.state == states.QUEUED]
        stop = str((queue.get("spec") or {}).get("stopPolicy") or "None")
        found.append(
            QueueView(
                name=objects.name(queue),
                team=team,
                stopped="" if stop == "None" else stop,
                flavors=quota.gpu_quotas(queue),
                holders=quota.quota_holders(mine, quota.queue_flavors(queue)),
                waiting=sorted(waiting, key=lambda one: one.place or 0),
                waiting_gpus=sum(map(_wanted_gpus, states.queue_order(mine)), Decimal(0)),
                size=sum(p.gpus for p in pools if p.name in quota.queue_flavors(queue)),
            )
        )
    return found


def _wanted_gpus(workload: Json) -> Decimal:
    return quota.total_requests(workload).get(naming.GPU, Decimal(0))


def pool_views(nodes: Sequence[Json], pods: Sequence[Json]) -> list[PoolView]:
    """Return the pools with their nodes by name. `pods`: of runs. Pure."""
    on_node: dict[str, list[Json]] = defaultdict(list)
    for pod in states.live_pods(pods):
        on_node[str((pod.get("spec") or {}).get("nodeName") or "")].append(pod)
    pools: dict[str, list[NodeView]] = defaultdict(list)
    for node in sorted(nodes, key=objects.name):
        pool = objects.label(node, naming.POOL)
        if pool:
            pools[pool].append(_node_view(node, pool, on_node[objects.name(node)]))
    return [
        PoolView(
            name=name, nodes=found, usd_per_hour=prices.total(one.usd_per_hour for one in found)
        )
        for name, found in sorted(pools.items())
    ]


def _node_view(node: Json, pool: str, pods: Sequence[Json]) -> NodeView:
    labels = objects.meta(node).get("labels") or {}
    there = (objects.status(node).get("allocatable") or {}).get(naming.GPU, 0)
    used = sum(
        (objects.requests(pod["spec"]).get(naming.GPU, Decimal(0)) for pod in pods), Decimal(0)
    )
    return NodeView(
        name=objects.name(node),
        pool=pool,
        instance_type=objects.label(node, naming.INSTANCE_TYPE),
        zone=objects.label(node, naming.ZONE),
        purchase=str(prices.purchase_of(labels) or ""),
        state=_node_state(node),
        gpus=int(quantity.parse(there)),
        gpus_used=int(used),
        runs=sorted({objects.run_id_of(pod) for pod in pods}),
        usd_per_hour=prices.node_usd_per_hour(labels),
        price_date=prices.node_price_date(labels),
        created=str(objects.meta(node).get("creationTimestamp") or ""),
    )


def _node_state(node: Json) -> str:
    spec = node.get("spec") or {}
    taints = [
        str(one["key"])
        for one in spec.get("taints") or []
        if one["key"] != _POOL_TAINT
        and not str(one["key"]).startswith("node.kubernetes.io/")
        and one["key"] != naming.GPU
    ]
    if not objects.condition_is_true(node, "Ready"):
        return "not ready"
    if spec.get("unschedulable"):
        return f"cordoned: {', '.join(taints)}" if taints else "cordoned"
    return READY


def node_events(events: Sequence[Json]) -> list[NodeEvent]:
    found = [
        NodeEvent(
            node=str(event["involvedObject"].get("name") or ""),
            reason=str(event.get("reason") or ""),
            message=str(event.get("message") or ""),
            time=str(
                event.get("lastTimestamp")
                or event.get("eventTime")
                or objects.meta(event).get("creationTimestamp")
                or ""
            ),
        )
        for event in events
        if event.get("type") == "Warning"
    ]
    return sorted(found, key=lambda one: one.time, reverse=True)[:50]
