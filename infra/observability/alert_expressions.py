"""Expressions and thresholds of the alerts."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.observability import dcgm, series
from infra.observability.log_patterns import COUNTED

LOW_RATIO: Final = 0.4
HINT_RATIO: Final = 0.6
"""GPUs below it usually wait for data."""
NAMED_S: Final = 900
"""Age until which a verdict about a rank that ended its attempt is news."""
RESTARTS: Final = 3
VOLUME_FREE_RATIO: Final = 0.1
MOSTLY_DOWN_RATIO: Final = 0.5
"""Fraction of the time below which a target's scrapes count as failed."""
AWAY: Final = "2h"
"""Longest outage of Prometheus or an exporter after which old log lines do not fire again."""

_OF_RUN: Final = "namespace, run_id, team"
_TEAMS: Final = f'namespace=~"{series.TEAM_NAMESPACES}"'


def _grew(counter: str, by: str, window: str) -> str:
    """Return the growth of a counter, its first sample included: `increase` needs two samples.

    A line that is logged once gives a series that starts at 1 and stays there. After an outage, growth from
    before it is not counted again, growth during it is. `increase` handles counter resets.
    """
    before = f"last_over_time({counter}[{AWAY}] offset {window})"
    gained = f"sum by ({by}) ({counter} - ({before} or {counter} * 0) > 0)"
    return f"({gained} or sum by ({by}) (increase({counter}[{window}])) > 0)"


def _mean(gauge: str, minutes: int) -> str:
    """Return the mean of a gauge over so many minutes, to be used with `for: 5m`.

    A bursting load, compared at each moment, is above a limit often enough never to stay below it. Of a series
    that is gone, or had not begun five minutes after the window, there is no mean.
    """
    had_begun = f"last_over_time({gauge}[10m] offset {minutes - 5}m)"
    return f"(avg_over_time({gauge}[{minutes}m]) and {gauge} and {had_begun})"


def _team_of(expression: str) -> str:
    team = f'"team", "$1", "namespace", "{naming.namespace("(.+)")}"'
    return f"label_replace({expression}, {team})"


_BUSY: Final = _mean(f'{series.GPU_UTILIZATION}{{pod!=""}}', 15)
LOW_UTILIZATION: Final = f"avg by (namespace, pod, run_id, team) ({_BUSY}) < {LOW_RATIO}"
UTILIZATION_HINT: Final = f"{_mean(series.RUN_GPU_UTILIZATION.name, 30)} < {HINT_RATIO}"

_WRITE: Final = series.CHECKPOINT_WRITE_SECONDS
CHECKPOINT_SLOW: Final = (
    f"max by ({_OF_RUN}) (max_over_time({_WRITE}[1h]) and {_WRITE})"
    f" > max by ({_OF_RUN}) ({series.SAVE_SECONDS})"
)
"""The slowest save of an hour, as quick saves may follow slow ones, and the run file's `saveSeconds`."""
CHECKPOINT_FAILED: Final = _grew(
    f'{series.EVENTS}{{event=~"checkpoint_failed|checkpoint_corrupt"}}', _OF_RUN, "15m"
)

_OF_CULPRIT: Final = f"{_OF_RUN}, symptom, culprit_rank, culprit_node, culprit_pod"


def _named(symptoms: str, age_s: int) -> str:
    """Match ranks that were named so recently; the value is the age in seconds."""
    age = f'time() - {series.CULPRIT_TIME}{{symptom=~"{symptoms}"}}'
    return f"max by ({_OF_CULPRIT}) ({age}) < {age_s}"


RANK_HUNG: Final = _named("hung|mismatched-rank", NAMED_S)
RANK_CORRUPT: Final = _named("corrupt-rank", NAMED_S)

_RESTARTED: Final = (
    f"round(sum by ({_OF_RUN}) (increase({series.POD_RESTARTS}[1h])"
    f" * on (namespace, pod) group_left (run_id, team) {series.RUN_POD}))"
)
_ATTEMPTS: Final = (
    f"max by ({_OF_RUN}) (max_over_time({series.ATTEMPT}[1h]))"
    f" - min by ({_OF_RUN}) (min_over_time({series.ATTEMPT}[1h]))"
)
_GROUP: Final = "-g[0-9]+"
"""Follows the run id in the name of a group's JobSet."""


def _of_gangs(jobs: str, *, groups: bool = False) -> str:
    """Map series of Jobs to the runs whose JobSets or MPIJobs created them; `groups`: to runs with groups only."""
    which = f'owner_name{"=~" if groups else "!~"}".+{_GROUP}"'
    owner = (
        f"max by (namespace, job_name, owner_name)"
        f' (max_over_time({series.JOB_OWNER}{{owner_kind=~"JobSet|MPIJob", {_TEAMS}, {which}}}[5m]))'
    )
    joined = f"{jobs} * on (namespace, job_name) group_left (owner_name) {owner}"
    suffix = _GROUP if groups else ""
    named = f'label_replace({_team_of(joined)}, "run_id", "$1", "owner_name", "(.+){suffix}")'
    return f"max by ({_OF_RUN}) ({named})"


_STARTS: Final = _of_gangs(f"changes({series.JOB_START}[1h])")
RESTART_LOOP: Final = (
    f"{_RESTARTED} >= {RESTARTS}"
    f" or (({_ATTEMPTS}) >= {RESTARTS} unless on (namespace, run_id) {series.PLANNED_GROUPS})"
    f" or {_STARTS} >= {RESTARTS}"
)
"""Container restarts, attempts reported by trainers, and starts of a JobSet's Job: the latter count attempts
that end before their trainer is scraped. Groups come and go, and each new leader is an attempt."""

_RUN_ID: Final = "[a-z0-9-]+-v[0-9]+-[0-9a-f]{8}"


def _of_names(series_: str, label: str, suffix: str = "") -> str:
    """Map series of objects that are named after their run."""
    named = f'label_replace({_team_of(series_)}, "run_id", "$1", "{label}", "({_RUN_ID}){suffix}")'
    return f"max by ({_OF_RUN}) ({named})"


_REPLICA: Final = "-(?:master|worker)-[0-9]+"
"""Follows the run id in names of a PyTorchJob's pods."""
_FAILED_JOBS: Final = f'({series.JOB_FAILED}{{condition="true"}} == 1)'
_OWN_JOBS: Final = (
    f'({series.JOB_FAILED}{{condition="true", {_TEAMS}, job_name=~"{_RUN_ID}"}} == 1)'
)
_REPLICAS: Final = (
    f'({series.POD_PHASE}{{phase="Failed", {_TEAMS}, pod=~"{_RUN_ID}{_REPLICA}"}} == 1)'
)
_DONE_JOBS: Final = f'({series.JOB_COMPLETE}{{condition="true"}} == 1)'
_FAILED_GROUPS: Final = (
    f"({_of_gangs(_FAILED_JOBS, groups=True)}"
    f" unless on (namespace, run_id) {_of_gangs(_DONE_JOBS, groups=True)}"
    f" unless on (namespace, run_id) {series.RUN_POD})"
)
"""A group that failed while others train, or before another was done, is not the end of its run."""
RUN_FAILED: Final = (
    f"{_of_gangs(_FAILED_JOBS)} or {_FAILED_GROUPS} or {_of_names(_OWN_JOBS, 'job_name')}"
    f" or {_of_names(_REPLICAS, 'pod', _REPLICA)}"
)
"""Of every job kind. A JobSet that restarts a gang deletes its failed Job, and Training Operator the pods that it
replaces: what remains failed is the end of the run. `job` and `indexed-job` are Jobs with the id of the run."""

PENDING_TOO_LONG: Final = (
    f'sum by (namespace, pod, run_id, team) (({series.POD_PHASE}{{phase="Pending"}} == 1)'
    f" * on (namespace, pod) group_left (run_id, team) {series.RUN_POD})"
)
_TIMED_OUT: Final = f'{series.LOG_MATCHES}{{pattern=~"{"|".join(COUNTED)}"}}'
NCCL_TIMEOUT: Final = (
    f"({_team_of(_grew(_TIMED_OUT, 'namespace, run_id', '15m'))})"
    f" unless on (namespace, run_id) {series.RUN_RECLAIMED}"
)
"""Ranks that survive a reclaimed node log the same lines and restart automatically."""

_GPU_NODES: Final = f'{series.NODE_INFO}{{workload="{naming.GPU_TRAINING}"}}'
NODE_PRESSURE: Final = (
    f"max by (node, condition) ({series.NODE_CONDITION}"
    '{condition=~"MemoryPressure|DiskPressure|PIDPressure", status="true"}) == 1'
    f" and on (node) {_GPU_NODES}"
)

_PROGRAMS: Final = "|".join(map(str, dcgm.APPLICATION_XIDS))
_HARDWARE_XID: Final = f'max_over_time({series.GPU_XID_SEEN}{{xid!~"{_PROGRAMS}"}}[15m])'


def _error(name: str, expression: str) -> str:
    return f'label_replace(max by (node, gpu, UUID) ({expression}), "error", "{name}", "", "")'


GPU_ERROR: Final = " or ".join(
    (
        "max by (node, gpu, UUID, error) ("
        f'label_replace({_HARDWARE_XID}, "error", "XID $1", "xid", "(.+)"))',
        _error("ECC", f"{series.GPU_ECC} > 0"),
        _error("row remapping", f"{series.GPU_REMAP_FAILED} > 0"),
    )
)

_GPU: Final = f'resource="{naming.GPU}"'
_RESERVED: Final = f"sum by (cluster_queue) ({series.QUOTA_RESERVED}{{{_GPU}}})"
_FREE_QUOTA: Final = (
    f"sum by (cluster_queue) ({series.QUOTA_NOMINAL}{{{_GPU}}}) > {_RESERVED}"
    # Parked runs needed more than is free: while other runs hold quota, this is an ordinary wait.
    f' and (sum by (cluster_queue) ({series.PENDING}{{status="active"}}) > 0 or {_RESERVED} == 0)'
)
STUCK_ADMISSION: Final = (
    f"sum by (cluster_queue) ({series.PENDING}) > 0"
    f" and on (cluster_queue) ({_FREE_QUOTA})"
    f' and on (cluster_queue) ({series.QUEUE_STATUS}{{status="active"}} == 1)'
    f" unless on (cluster_queue) {_grew(series.ADMITTED_TOTAL.name, 'cluster_queue', '30m')}"
)


def _scope(expression: str, label: str, value: str) -> str:
    return f'label_replace({expression}, "scope", "{value}", "{label}", "(.*)")'


_TEAM_COST: Final = f'sum by (team) ({series.RUN_COST}{{capacity="on-demand"}})'


def _mean_cost(cost: str, nothing: str) -> str:
    """Return the mean of 15 minutes of a cost; `nothing` is there, and 0, while there are no nodes."""
    return f"avg_over_time(({cost} or {nothing})[15m:1m])"


_OF_TEAM: Final = _mean_cost(_TEAM_COST, f"on (team) {series.TEAM_BUDGET} * 0")
_OF_STACK: Final = _mean_cost(f"sum({series.NODE_COST})", "vector(0)")
BUDGET_BURN: Final = (
    _scope(f"{_OF_TEAM} / on (team) {series.TEAM_BUDGET} > 1", "team", "team $1")
    + " or "
    + _scope(f"{_OF_STACK} / on () max({series.STACK_BUDGET}) > 1", "scope", "the stack")
)

BUDGET_USED: Final = (
    f'max by (team, state) (({series.BUDGET_STATE}{{state=~"warned|held|drained"}} == 1)'
    f" * on (team) group_left () max by (team) ({series.BUDGET_USED}))"
)

VOLUME_FULL: Final = f"min_over_time({series.VOLUME_FREE_RATIO}[15m]) < {VOLUME_FREE_RATIO}"
"""A save fills the volume, and the deletion of an older checkpoint empties it: the minimum counts."""


_DRILL: Final = "restore-drill"
_DRILL_FAILED: Final = (
    f"max by (namespace) ({series.JOB_START}"
    f' and on (namespace, job_name) ({series.JOB_FAILED}{{condition="true"}} == 1)'
    f' and on (namespace, job_name) {series.JOB_OWNER}{{owner_kind="CronJob", owner_name="{_DRILL}"}})'
)
_DRILL_SUCCEEDED: Final = f'{series.CRONJOB_SUCCEEDED}{{cronjob="{_DRILL}"}}'
RESTORE_DRILL_FAILED: Final = (
    f"{_DRILL_FAILED} unless on (namespace)"
    f" (max by (namespace) ({_DRILL_SUCCEEDED}) > {_DRILL_FAILED})"
)
"""The newest drill of a team failed: none has succeeded since."""

_UNWATCHED: Final = (
    *(series.TRAINER_JOB, series.CULPRITS_JOB),
    *(series.COSTS_JOB, series.STEERING_JOB),
)
_WATCHED: Final = "|".join(job for job in series.JOBS if job not in _UNWATCHED)
SILENT_S: Final = 600
"""Age of the last look from which budgets or steering count as stopped; they look at least once a minute."""


def _stopped(job: str, expected: series.Series, looked: str) -> str:
    """Match a controller that the stack has, and that has not looked at the cluster."""
    named = f'label_replace({expected}, "job", "{job}", "", "")'
    return f"{named} unless on () time() - min({looked}) < {SILENT_S}"


_KUEUE_UP: Final = f'{series.UP}{{job="{series.KUEUE_JOB}"}}'
_DECIDED: Final = f"{series.BUDGET_DECIDED} or {series.COSTS_RECORDED}"
"""The record of costs, and the decisions on each team; the oldest counts."""
_MOSTLY_UP: Final = _mean(f'{series.UP}{{job=~"{_WATCHED}"}}', 10)
TARGET_DOWN: Final = (
    f"max by (job) ({_MOSTLY_UP}) < {MOSTLY_DOWN_RATIO}"
    f' or absent_over_time({series.UP}{{job="{series.STATE_JOB}"}}[5m])'
    f" or group by (job) (last_over_time({_KUEUE_UP}[3h]))"
    f" unless on (job) last_over_time({_KUEUE_UP}[5m])"
    f" or {_stopped(series.COSTS_JOB, series.COSTS_EXPECTED, _DECIDED)}"
    f" or {_stopped(series.STEERING_JOB, series.STEERING_EXPECTED, str(series.STEERING_LOOKED))}"
)
"""Excludes the trainer: only the leading pod of a run serves metrics, and only while it trains.

A Kueue pod that is not scheduled is not a target: the alert compares with the targets of the last three
hours. Costs and steering count by their last look: a pod that waits for its Lease, or sees a wrong clock,
answers scrapes."""
