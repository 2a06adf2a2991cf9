"""Recording rules: exporters' series under stable names and base units.

A rule file is plain data as Prometheus reads it; `rules.py` combines recording rules and alerts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.domain import naming
from infra.observability import dcgm, series
from infra.observability.series import Series, state_label

INTERVAL_S: Final = 30
"""Seconds between rule evaluations, and between scrapes of the exporters."""
INTERVAL: Final = f"{INTERVAL_S}s"

Rule = dict[str, Any]
Group = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class NodePrice:
    instance_type: str
    capacity: str
    """How it was bought: `spot`, `on-demand` or `reserved`."""
    usd_per_hour: float


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts of a stack that rules contain as constants."""

    prices: tuple[NodePrice, ...] = ()
    """Spot and on-demand prices of the pools' instance types; the difference is the saving. A node without a price
    counts as free."""
    purchase_labels: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: {naming.CAPACITY: {"spot": "spot", "on-demand": "on-demand"}}
    )
    """By label key, how a node with this value was bought; the most reliable label last."""
    reserved_pools: tuple[str, ...] = ()
    """Pools whose nodes are all reserved, whatever their labels say."""
    team_budgets: Mapping[str, float] = field(default_factory=dict)
    """USD per hour that a team's on-demand runs may cost, by team."""
    costs: bool = False
    """Whether the add-on `costs` records and enforces budgets."""
    steering: bool = False
    """Whether the add-on `steering` moves runs."""


def groups(facts: Facts | None = None) -> list[Group]:
    """Return the groups of recording rules, each after those that it reads."""
    known = facts or Facts()
    found = [
        _group("trainyard-runs", [_run_pod()]),
        _group("trainyard-gpus", list(_gpus())),
        _group("trainyard-training", list(_training())),
        _group("trainyard-volumes", [_volumes()]),
        _group("trainyard-nodes", [_node_info(known), _reclaimed()]),
        _group("trainyard-cost", [*_prices(known), *_costs()]),
    ]
    return [group for group in found if group["rules"]]


def _group(name: str, rules: list[Rule]) -> Group:
    return {"name": name, "interval": INTERVAL, "rules": rules}


def _rule(target: Series, expression: str, **labels: str) -> Rule:
    rule: Rule = {"record": target.name, "expr": expression}
    return rule | {"labels": labels} if labels else rule


def _named(expression: str, labels: Mapping[str, str]) -> str:
    """Return the expression with labels of kube-state-metrics copied to plain names."""
    for key, name in labels.items():
        copied = f'"{name}", "$1", "{state_label(key)}", "(.+)"'
        expression = f"label_replace({expression}, {copied})"
    return expression


def _run_pod() -> Rule:
    named = _named(
        f'{series.POD_LABEL_INFO}{{{state_label(naming.RUN_ID)}!=""}}',
        {naming.RUN_ID: "run_id", naming.RUN: "run", naming.TEAM: "team"},
    )
    # One series per pod name: a Job recreates a pod under the same name.
    on_node = f"topk by (namespace, pod) (1, max by (namespace, pod, node) ({series.POD_INFO}))"
    going_on = f'{series.POD_PHASE}{{phase=~"Pending|Running"}} == 1'
    return _rule(
        series.RUN_POD,
        f"topk by (namespace, pod) (1, max by (namespace, pod, node, run_id, run, team) ("
        f"{named} * on (namespace, pod) group_left (node) {on_node}))"
        f" and on (namespace, pod) ({going_on})",
    )


def _node_info(facts: Facts) -> Rule:
    named = _named(
        f'{series.NODE_LABEL_INFO}{{{state_label(naming.POOL)}!=""}}',
        {
            naming.POOL: "pool",
            naming.INSTANCE_TYPE: "instance_type",
            naming.WORKLOAD_TYPE: "workload",
        },
    )
    # A spot pool may buy on-demand nodes, so the labels of who bought the node are used after the pool's.
    for key, values in facts.purchase_labels.items():
        for value, bought in values.items():
            copied = f'"capacity", "{bought}", "{state_label(key)}", "{value}"'
            named = f"label_replace({named}, {copied})"
    if facts.reserved_pools:
        pools = "|".join(facts.reserved_pools)
        named = f'label_replace({named}, "capacity", "reserved", "pool", "{pools}")'
    return _rule(
        series.NODE_INFO, f"max by (node, pool, capacity, instance_type, workload) ({named})"
    )


def _reclaimed() -> Rule:
    """Find runs on spot nodes that are leaving or gone.

    A leaving node is cordoned or not ready before its object is deleted; its name may be reused.
    """
    had = f'max_over_time({series.RUN_POD}{{node!=""}}[30m])'
    spot = f'max by (node) (max_over_time({series.NODE_INFO}{{capacity="spot"}}[30m]))'
    stays = (
        f'{series.NODE_CONDITION}{{condition="Ready", status="true"}} == 1'
        f" unless on (node) ({series.NODE_CORDONED} == 1)"
        f" unless on (node) (changes({series.NODE_CREATED}[30m]) > 0)"
    )
    of_run = f"{had} * on (node) group_left () {spot} unless on (node) ({stays})"
    return _rule(series.RUN_RECLAIMED, f"max by (namespace, run_id) ({of_run})")


_OF_GPU: Final = "node, gpu, UUID, modelName, GPU_I_ID, namespace, pod"

RECORDED: Final[Mapping[Series, dcgm.Field]] = {
    series.GPU_UTILIZATION: dcgm.GPU_UTIL,
    series.GPU_MEMORY_USED: dcgm.FB_USED,
    series.GPU_MEMORY_FREE: dcgm.FB_FREE,
    series.GPU_POWER: dcgm.POWER,
    series.GPU_TEMPERATURE: dcgm.GPU_TEMP,
    series.GPU_CLOCK: dcgm.SM_CLOCK,
    series.GPU_TENSOR: dcgm.TENSOR,
    series.GPU_XID: dcgm.XID,
    series.GPU_ECC: dcgm.ECC_UNCORRECTABLE,
    series.GPU_REMAP_FAILED: dcgm.ROW_REMAP_FAILURE,
}


def either_name(gpu_field: dcgm.Field) -> str:
    """Return the field in its base unit, for either version of the exporter."""
    old = f"{gpu_field.name} * {gpu_field.scale:.12g}"
    if not gpu_field.renamed:
        return old
    return f"{old} or {gpu_field.renamed} * 1"


def _gpus() -> Iterable[Rule]:
    """Record GPU series, with the run's labels where a run's pod holds the GPU."""
    same = "node, UUID, GPU_I_ID, namespace, pod"
    for target, gpu_field in RECORDED.items():
        found = either_name(gpu_field)
        if gpu_field is dcgm.GPU_UTIL:
            # MIG instances have no other utilisation metric.
            found = f"{found} or {either_name(dcgm.GR_ENGINE)}"
        value = f"max by ({_OF_GPU}) ({found})"
        yield _rule(
            target,
            f"{value} * on (namespace, pod) group_left (run_id, team) {series.RUN_POD}"
            f" or on ({same}) {value}",
        )
    last = " or ".join(f"{name} > 0" for name in dcgm.XID.names)
    yield _rule(
        series.GPU_XID_SEEN,
        f'count_values by (node, gpu, UUID) ("xid", max by (node, gpu, UUID) ({last})) > 0'
        f' or max by (node, gpu, UUID, xid) ({dcgm.XID_COUNT}{{xid!~"0?"}} > bool 0) > 0',
    )


def _training() -> Iterable[Rule]:
    of_run = "namespace, run_id, team"
    yield _rule(
        series.RUN_GPU_UTILIZATION, f'avg by ({of_run}) ({series.GPU_UTILIZATION}{{run_id!=""}})'
    )
    yield _rule(
        series.RUN_GPUS,
        f"sum by ({of_run}) ({_requested_gpus('namespace, pod')}"
        f" * on (namespace, pod) group_left (run_id, team) {series.RUN_POD})",
    )
    steps = f"sum by ({of_run}) (rate({series.STEP_SECONDS}[5m]))"
    for target, seconds in (
        (series.RUN_LOADER, series.LOADER_SECONDS),
        (series.RUN_COLLECTIVE, series.COLLECTIVE_SECONDS),
    ):
        yield _rule(target, f"sum by ({of_run}) (rate({seconds}[5m])) / ({steps} > 0)")
    yield _rule(series.RUN_TOKENS, f"sum by ({of_run}) (rate({series.TOKENS}[5m]))")


def _volumes() -> Rule:
    """Record the free fraction of volumes; every node that mounts a volume exports it."""
    volume = "namespace, persistentvolumeclaim"
    of_teams = f'namespace=~"{series.TEAM_NAMESPACES}"'
    by_kubelet = (
        f"min by ({volume}) ({series.VOLUME_AVAILABLE}{{{of_teams}}})"
        f" / min by ({volume}) ({series.VOLUME_CAPACITY})"
    )
    by_runs = f"min by (namespace) ({series.VOLUME_FREE} / {series.VOLUME_SIZE})"
    claim = f'"persistentvolumeclaim", "{naming.CHECKPOINTS_CLAIM}", "", ""'
    return _rule(
        series.VOLUME_FREE_RATIO, f"{by_kubelet} or on ({volume}) label_replace({by_runs}, {claim})"
    )


def _requested_gpus(by: str) -> str:
    requests = f'{series.POD_REQUESTS}{{resource="{series.GPU_RESOURCE}", node!=""}}'
    live = f'{series.POD_PHASE}{{phase=~"Pending|Running"}} == 1'
    return f"sum by ({by}) ({requests} and on (namespace, pod) ({live}))"


def _prices(facts: Facts) -> Iterable[Rule]:
    for price in facts.prices:
        yield _rule(
            series.NODE_PRICE,
            f"vector({price.usd_per_hour:.10g})",
            instance_type=price.instance_type,
            capacity=price.capacity,
        )
    for team, usd in facts.team_budgets.items():
        yield _rule(series.TEAM_BUDGET, f"vector({usd:.10g})", team=team)
    if facts.costs:
        yield _rule(series.COSTS_EXPECTED, "vector(1)")
    if facts.steering:
        yield _rule(series.STEERING_EXPECTED, "vector(1)")


def _costs() -> Iterable[Rule]:
    yield _rule(
        series.NODE_COST,
        f"max by (node, pool, capacity, instance_type) ({series.NODE_INFO})"
        f" * on (instance_type, capacity) group_left () {series.NODE_PRICE}",
    )
    there = f'max by (node) ({series.NODE_ALLOCATABLE}{{resource="{series.GPU_RESOURCE}"}} > 0)'
    yield _rule(
        series.RUN_COST,
        "sum by (namespace, run_id, team, capacity) ("
        f"{_requested_gpus('namespace, pod, node')} / on (node) group_left () {there}"
        f" * on (node) group_left (capacity) {series.NODE_COST}"
        f" * on (namespace, pod) group_left (run_id, team) {series.RUN_POD})",
    )
    idle = f"1 - ({_requested_gpus('node')} / {there}) or {there} * 0 + 1"
    yield _rule(
        series.IDLE_COST,
        f"sum by (pool, capacity) ({series.NODE_COST} * on (node) group_left () ({idle}))",
    )
