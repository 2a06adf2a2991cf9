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
from infra.observability.series import Series

_GPUS: Final = f'{series.NODE_ALLOCATABLE}{{resource="{series.GPU_RESOURCE}"}}'
_BY_POOL: Final = f"* on (node) group_left (pool) {series.NODE_INFO}"
_FIRING: Final = f'{series.FIRING}{{alertstate="firing", severity!~"none|info"}}'
"""Without the always-firing watchdog alerts of kube-prometheus-stack."""
_QUOTA: Final = f'resource="{naming.GPU}"'


def _of_day(counted: Series) -> str:
    """Return the newest count of each run that exported one within a day."""
    return f"max by (namespace, run_id) (max_over_time({counted}[1d]))"


NOW: Final = Row(
    title="Now",
    panels=(
        number("GPUs", Unit.COUNT, f"sum({_GPUS})", "Allocatable GPUs of all nodes.", width=3),
        number(
            "GPUs in use",
            Unit.COUNT,
            f"sum({series.RUN_GPUS})",
            "GPUs held by scheduled pods of runs.",
            width=3,
        ),
        number(
            "GPU utilisation",
            Unit.RATIO,
            f'avg({series.GPU_UTILIZATION}{{pod!=""}})',
            "Mean utilisation of GPUs that a pod holds. Below 40 % for 15 minutes an alert fires.",
            width=3,
            maximum=1.0,
            thresholds=((0.0, "red"), (0.4, "yellow"), (0.6, "green")),
        ),
        number(
            "Training runs",
            Unit.COUNT,
            f"count(count by (run_id) ({series.STEP}))",
            "Runs whose trainer exports metrics.",
            width=3,
        ),
        number(
            "Waiting runs",
            Unit.COUNT,
            f"sum({series.PENDING})",
            "Workloads in Kueue's queues that are not admitted.",
            width=3,
        ),
        number(
            "Firing alerts",
            Unit.COUNT,
            f"count({_FIRING}) or vector(0)",
            "Alerts with a receiver; the table below lists them.",
            width=3,
            thresholds=((1.0, "red"),),
        ),
        number(
            "Cost per hour",
            Unit.USD,
            f"sum({series.NODE_COST})",
            "Catalog price of all running nodes; nodes without a price are not included.",
            width=3,
        ),
        number(
            "Idle cost per hour",
            Unit.USD,
            f"sum({series.IDLE_COST})",
            "The share of GPU nodes' price that corresponds to unused GPUs.",
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
            "Mean utilisation of each pool's GPUs, unused ones included.",
            (f"avg by (pool) ({series.GPU_UTILIZATION} {_BY_POOL})", "{{pool}}"),
            maximum=1.0,
        ),
        lines(
            "Power by pool",
            Unit.WATTS,
            "Total power draw of each pool's GPUs.",
            (f"sum by (pool) ({series.GPU_POWER} {_BY_POOL})", "{{pool}}"),
            stacked=True,
        ),
        lines(
            "Hottest GPU by pool",
            Unit.CELSIUS,
            "GPUs throttle from about 85 °C; the exact limit depends on the model.",
            (f"max by (pool) ({series.GPU_TEMPERATURE} {_BY_POOL})", "{{pool}}"),
            thresholds=((85.0, "red"),),
        ),
        lines(
            "Slowest GPU clock by pool",
            Unit.HERTZ,
            "One throttled GPU delays every rank of its run.",
            (f"min by (pool) ({series.GPU_CLOCK} {_BY_POOL})", "{{pool}}"),
        ),
        lines(
            "GPUs by pool",
            Unit.COUNT,
            "Allocatable GPUs of each pool's nodes.",
            (f"sum by (pool) ({_GPUS} {_BY_POOL})", "{{pool}}"),
            stacked=True,
        ),
        Panel(
            title="Hardware errors",
            description="GPUs with an uncorrectable ECC error or an XID since their driver was loaded. The "
            "value is the last XID; programs cause XIDs 13, 31, 43, 45, 68 and 109.",
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
            description="GPUs held by the pods of each run; a run's name links to its dashboard.",
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
        lines(
            "Resume success",
            Unit.RATIO,
            "Of the attempts that had a checkpoint to load, the fraction that loaded one: runs of the last day.",
            (
                f"sum({_of_day(series.RESUMES_DONE)}) / (sum({_of_day(series.RESUMES_DUE)}) > 0)",
                "resumed",
            ),
            maximum=1.0,
        ),
    ),
)

QUEUES: Final = Row(
    title="Queues",
    panels=(
        lines(
            "Waiting runs by queue",
            Unit.COUNT,
            "By status. Kueue retries inadmissible workloads only after a change.",
            (
                f"sum by (cluster_queue, status) ({series.PENDING})",
                "{{cluster_queue}} {{status}}",
            ),
            stacked=True,
        ),
        lines(
            "Admission wait, 95th percentile",
            Unit.SECONDS,
            "Time from a run's creation or requeueing to its admission.",
            (
                f"histogram_quantile(0.95, sum by (le, cluster_queue) (rate({series.ADMISSION_WAIT}[1h])))",
                "{{cluster_queue}}",
            ),
        ),
        lines(
            "Evictions per hour",
            Unit.COUNT,
            "Evicted workloads, by reason.",
            (f"sum by (reason) (increase({series.EVICTED}[1h]))", "{{reason}}"),
            stacked=True,
        ),
        lines(
            "GPU quota in use",
            Unit.COUNT,
            "GPUs reserved by admitted runs, by queue.",
            (
                f"sum by (cluster_queue) ({series.QUOTA_RESERVED}{{{_QUOTA}}})",
                "{{cluster_queue}}",
            ),
            stacked=True,
        ),
        lines(
            "Guaranteed GPU quota",
            Unit.COUNT,
            "Guaranteed GPUs of each queue; usage above this is borrowed.",
            (
                f"sum by (cluster_queue) ({series.QUOTA_NOMINAL}{{{_QUOTA}}})",
                "{{cluster_queue}}",
            ),
        ),
        lines(
            "Admitted runs",
            Unit.COUNT,
            "Runs that hold quota, by queue.",
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
            "Nodes registered with the API server.",
            (f"count by (pool) ({series.NODE_INFO})", "{{pool}}"),
            stacked=True,
        ),
        lines(
            "Not ready or cordoned nodes",
            Unit.COUNT,
            "Nodes that accept no pods.",
            (
                f'sum by (pool) (({series.NODE_CONDITION}{{condition="Ready", status="true"}} == bool 0)'
                f" {_BY_POOL})",
                "{{pool}}: not ready",
            ),
            (f"sum by (pool) ({series.NODE_CORDONED} {_BY_POOL})", "{{pool}}: cordoned"),
        ),
        lines(
            "Storage latency by team",
            Unit.SECONDS,
            "Time that the newest line of a run's events.jsonl took to reach its volume: the slowest of each "
            "team's runs.",
            (f"max by (team) ({series.VOLUME_SYNC_SECONDS})", "{{team}}"),
        ),
        Panel(
            title="Firing alerts by name",
            description="Each alert has a page in docs/runbooks.",
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
