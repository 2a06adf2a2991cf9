"""Dashboard of a stack: capacity, utilisation, queues, alerts."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.observability import series
from infra.observability.dashboards.model import (
    Dashboard,
    Kind,
    Panel,
    Query,
    Row,
    Unit,
    lines,
    number,
)

_GPUS: Final = f'{series.NODE_ALLOCATABLE}{{resource="{series.GPU_RESOURCE}"}}'
_BY_POOL: Final = f"* on (node) group_left (pool) {series.NODE_INFO}"
_FIRING: Final = f'{series.FIRING}{{alertstate="firing", severity!~"none|info"}}'
"""Without the always-firing watchdog alerts of kube-prometheus-stack."""
_QUOTA: Final = f'resource="{naming.GPU}"'

NOW: Final = Row(
    title="Now",
    panels=(
        number("GPUs", Unit.COUNT, f"sum({_GPUS})", "GPUs that nodes have to give.", width=3),
        number(
            "GPUs of runs",
            Unit.COUNT,
            f"sum({series.RUN_GPUS})",
            "GPUs that placed pods of runs hold.",
            width=3,
        ),
        number(
            "Busy",
            Unit.RATIO,
            f'avg({series.GPU_UTILIZATION}{{pod!=""}})',
            "Utilisation of the GPUs that some pod holds. Below 40 % for 15 minutes is an alert.",
            width=3,
            maximum=1.0,
            thresholds=((0.0, "red"), (0.4, "yellow"), (0.6, "green")),
        ),
        number(
            "Runs that train",
            Unit.COUNT,
            f"count(count by (run_id) ({series.STEP}))",
            "Runs whose trainer tells its metrics.",
            width=3,
        ),
        number(
            "Runs that wait",
            Unit.COUNT,
            f"sum({series.PENDING})",
            "Workloads in Kueue's queues that are not admitted.",
            width=3,
        ),
        number(
            "Alerts",
            Unit.COUNT,
            f"count({_FIRING}) or vector(0)",
            "Alerts that somebody is told of; the table below names them.",
            width=3,
            thresholds=((1.0, "red"),),
        ),
        number(
            "Costs an hour",
            Unit.USD,
            f"sum({series.NODE_COST})",
            "Price of all nodes that are up, as in the catalog; nodes without a price are left out.",
            width=3,
        ),
        number(
            "Idle, an hour",
            Unit.USD,
            f"sum({series.IDLE_COST})",
            "The part of GPU nodes' price that goes with GPUs that no pod holds.",
            width=3,
        ),
    ),
)

GPUS: Final = Row(
    title="GPUs",
    panels=(
        lines(
            "Utilisation by pool",
            Unit.RATIO,
            "How busy the GPUs of each pool are, those that nobody holds included.",
            (f"avg by (pool) ({series.GPU_UTILIZATION} {_BY_POOL})", "{{pool}}"),
            maximum=1.0,
        ),
        lines(
            "Power by pool",
            Unit.WATTS,
            "Power that all GPUs of a pool draw.",
            (f"sum by (pool) ({series.GPU_POWER} {_BY_POOL})", "{{pool}}"),
            stacked=True,
        ),
        lines(
            "Hottest GPU by pool",
            Unit.CELSIUS,
            "Clocks are lowered from about 85 °C on; the exact limit is the model's.",
            (f"max by (pool) ({series.GPU_TEMPERATURE} {_BY_POOL})", "{{pool}}"),
            thresholds=((85.0, "red"),),
        ),
        lines(
            "Clock by pool, slowest GPU",
            Unit.HERTZ,
            "One GPU that is throttled holds up every rank of its run.",
            (f"min by (pool) ({series.GPU_CLOCK} {_BY_POOL})", "{{pool}}"),
        ),
        lines(
            "GPUs by pool",
            Unit.COUNT,
            "GPUs that the nodes of each pool have to give.",
            (f"sum by (pool) ({_GPUS} {_BY_POOL})", "{{pool}}"),
            stacked=True,
        ),
        Panel(
            title="Hardware errors",
            description="GPUs with an uncorrectable ECC error or an XID since their driver was loaded. The "
            "value is the last XID; XIDs 13, 31, 43, 45, 68 and 109 are the program's own.",
            unit=Unit.NONE,
            kind=Kind.TABLE,
            queries=(Query(expression=f"{series.GPU_XID} > 0 or {series.GPU_ECC} > 0"),),
            columns=("node", "gpu", "UUID", "run_id"),
        ),
    ),
)

RUNS: Final = Row(
    title="Runs",
    panels=(
        Panel(
            title="Runs by GPUs",
            description="GPUs that the pods of each run hold; a run's name leads to its own page.",
            unit=Unit.COUNT,
            kind=Kind.TABLE,
            queries=(Query(expression=f"sort_desc(sum by (team, run_id) ({series.RUN_GPUS}))"),),
            columns=("team", "run_id"),
        ),
        Panel(
            title="Least busy runs",
            description="Utilisation of the GPUs of the ten runs that use theirs least.",
            unit=Unit.RATIO,
            kind=Kind.TABLE,
            queries=(
                Query(
                    expression=f"sort(bottomk(10, avg by (team, run_id) ({series.RUN_GPU_UTILIZATION})))"
                ),
            ),
            columns=("team", "run_id"),
        ),
        lines(
            "Cost an hour by team",
            Unit.USD,
            "The part of nodes' prices that goes with the GPUs that runs hold.",
            (f"sum by (team) ({series.RUN_COST})", "{{team}}"),
            stacked=True,
        ),
    ),
)

QUEUES: Final = Row(
    title="Queues",
    panels=(
        lines(
            "Waiting runs",
            Unit.COUNT,
            "By queue. An inadmissible one is tried again only when something changes.",
            (
                f"sum by (cluster_queue, status) ({series.PENDING})",
                "{{cluster_queue}} {{status}}",
            ),
            stacked=True,
        ),
        lines(
            "Wait for admission, 95th percentile",
            Unit.SECONDS,
            "From a run's creation, or its return to the queue, until it was admitted.",
            (
                f"histogram_quantile(0.95, sum by (le, cluster_queue) (rate({series.ADMISSION_WAIT}[1h])))",
                "{{cluster_queue}}",
            ),
        ),
        lines(
            "Evictions an hour",
            Unit.COUNT,
            "Runs that gave their nodes back, by reason.",
            (f"sum by (reason) (increase({series.EVICTED}[1h]))", "{{reason}}"),
            stacked=True,
        ),
        lines(
            "GPU quota in use",
            Unit.COUNT,
            "GPUs that admitted runs of each queue reserve.",
            (
                f"sum by (cluster_queue) ({series.QUOTA_RESERVED}{{{_QUOTA}}})",
                "{{cluster_queue}}",
            ),
            stacked=True,
        ),
        lines(
            "GPU quota of their own",
            Unit.COUNT,
            "GPUs that each queue has for itself; more than that is borrowed.",
            (
                f"sum by (cluster_queue) ({series.QUOTA_NOMINAL}{{{_QUOTA}}})",
                "{{cluster_queue}}",
            ),
        ),
        lines(
            "Admitted runs",
            Unit.COUNT,
            "Runs that hold their quota now.",
            (f"sum by (cluster_queue) ({series.ADMITTED_ACTIVE})", "{{cluster_queue}}"),
            stacked=True,
        ),
    ),
)

NODES: Final = Row(
    title="Nodes",
    panels=(
        lines(
            "Nodes by pool",
            Unit.COUNT,
            "Nodes that the API server knows.",
            (f"count by (pool) ({series.NODE_INFO})", "{{pool}}"),
            stacked=True,
        ),
        lines(
            "Not ready, or cordoned",
            Unit.COUNT,
            "Nodes that take no pods.",
            (
                f'sum by (pool) (({series.NODE_CONDITION}{{condition="Ready", status="true"}} == bool 0)'
                f" {_BY_POOL})",
                "{{pool}}: not ready",
            ),
            (f"sum by (pool) ({series.NODE_CORDONED} {_BY_POOL})", "{{pool}}: cordoned"),
        ),
        Panel(
            title="Alerts that fire",
            description="Each has a page in docs/runbooks.",
            unit=Unit.NONE,
            kind=Kind.TABLE,
            queries=(Query(expression=_FIRING),),
            columns=("alertname", "severity", "owner", "team", "run_id", "node"),
        ),
    ),
)

FLEET: Final = Dashboard(
    uid=f"{naming.PROJECT}-fleet",
    title="Fleet",
    description="All pools, queues and nodes of a stack.",
    rows=(NOW, RUNS, GPUS, QUEUES, NODES),
)
