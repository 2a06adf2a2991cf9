"""Metric names of exporters and recording rules.

Use a series by its constant (`f"rate({LOADER_SECONDS}[5m])"`), never by its literal name. GPU fields are in
`dcgm.py`; rules, dashboards and commands read the `trainyard:*` series recorded from them.

Scrape jobs are named `trainer`, `culprits`, `dcgm-exporter`, `kueue-controller-manager`, `apiserver`,
`kube-state-metrics` and `costs`. Every series of a run's pod has the labels `namespace`, `pod`, `node`,
`run_id` and `team`: the scrape adds them from the pod; series of kube-state-metrics get them by a join with
RUN_POD.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from infra.observability import dcgm

TRAINER_JOB: Final = "trainer"
CULPRITS_JOB: Final = "culprits"
DCGM_JOB: Final = "dcgm-exporter"
KUEUE_JOB: Final = "kueue-controller-manager"
APISERVER_JOB: Final = "apiserver"
STATE_JOB: Final = "kube-state-metrics"
COSTS_JOB: Final = "costs"
STEERING_JOB: Final = "steering"
JOBS: Final = (
    *(TRAINER_JOB, CULPRITS_JOB, DCGM_JOB, KUEUE_JOB, APISERVER_JOB, STATE_JOB),
    *(COSTS_JOB, STEERING_JOB),
)

OWN_PREFIX: Final = f"{naming.PROJECT}_"
"""Prefix of metrics that runs export; the scrape drops all others."""
COSTS_PREFIX: Final = f"{OWN_PREFIX}costs_"
"""Prefix of metrics of ledger and budgets."""
STEERING_PREFIX: Final = f"{OWN_PREFIX}steering_"
"""Prefix of metrics of `spot steer`."""
CULPRITS_PREFIX: Final = f"{OWN_PREFIX}culprit_"
"""Prefix of metrics of ranks that were named."""
CULPRITS_PATH: Final = "/culprits"
"""Where a run exports these, and nothing else."""
CULPRITS_INTERVAL: Final = "2s"
"""Interval of their scrapes and of the alerts on them: with the others' a page would come a minute later."""
NOT_OF_RUNS: Final = f"({COSTS_PREFIX}|{STEERING_PREFIX}).+"
"""Regular expression for metrics that the scrape of runs drops, so that no run can export them."""
SAMPLES_OF_A_RUN: Final = 500
"""Sample limit of one scrape of a run; a larger scrape fails. The trainer exports about twenty."""

POD_LABELS: Final = (naming.RUN_ID, naming.RUN, naming.TEAM)
NODE_LABELS: Final = (
    *(naming.POOL, naming.CAPACITY, naming.WORKLOAD_TYPE),
    *(naming.INSTANCE_TYPE, naming.ZONE),
    *(naming.KARPENTER_CAPACITY, naming.EKS_CAPACITY),
)
"""Labels in kube-state-metrics' `--metric-labels-allowlist`."""
STATE_RESOURCES: Final = ("cronjobs", "jobs", "nodes", "persistentvolumeclaims", "pods")
"""Resources that the rules need from kube-state-metrics: `--resources`."""

TEAM_NAMESPACES: Final = naming.namespace(".+")
"""Regular expression for team namespaces; PromQL and Alertmanager match the whole value."""


def state_label(key: str) -> str:
    """Return kube-state-metrics' name for a label key, such as `label_trainyard_dev_run_id`."""
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", key)
    # It writes capacityType as capacity_type.
    return "label_" + re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", plain).lower()


def allowlist() -> str:
    """Return the value of `--metric-labels-allowlist`."""
    return f"pods=[{','.join(POD_LABELS)}],nodes=[{','.join(NODE_LABELS)}]"


@dataclass(frozen=True, kw_only=True)
class Series:
    name: str
    labels: tuple[str, ...] = ()
    """Besides `job` and `instance`."""
    help: str = ""
    """What our own exporter writes about it."""

    def __str__(self) -> str:
        return self.name


_POD: Final = ("namespace", "pod")
_RUN: Final = ("namespace", "pod", "node", "run_id", "team")


def _trainer(name: str, *labels: str) -> Series:
    return Series(name=f"{OWN_PREFIX}{name}", labels=(*_RUN, *labels))


def _kueue(name: str, *labels: str) -> Series:
    return Series(name=f"kueue_{name}", labels=labels)


def _state(name: str, *labels: str) -> Series:
    return Series(name=f"kube_{name}", labels=labels)


# The trainer's leading rank: trainyard/prometheus.py.
STEPS: Final = _trainer("steps_total")
TOKENS: Final = _trainer("tokens_total")
SAMPLES: Final = _trainer("samples_total")
STEP_SECONDS: Final = _trainer("step_seconds_total")
LOADER_SECONDS: Final = _trainer("loader_seconds_total")
COLLECTIVE_SECONDS: Final = _trainer("collective_seconds_total")
CHECKPOINT_STALL_SECONDS: Final = _trainer("checkpoint_stall_seconds_total")
STEP: Final = _trainer("step")
PLANNED_STEPS: Final = _trainer("planned_steps")
ATTEMPT: Final = _trainer("attempt")
GROUPS: Final = _trainer("groups")
"""Replica groups that take part; only of runs that have groups, as PLANNED_GROUPS."""
PLANNED_GROUPS: Final = _trainer("planned_groups")
RESTARTS_IN_POD: Final = _trainer("restarts_in_pod")
LOSS: Final = _trainer("loss_nats")
EVALUATION_LOSS: Final = _trainer("evaluation_loss_nats")
LEARNING_RATE: Final = _trainer("learning_rate")
GRADIENT_NORM: Final = _trainer("gradient_norm")
TOKENS_PER_SECOND: Final = _trainer("tokens_per_second")
SAMPLES_PER_SECOND: Final = _trainer("samples_per_second")
MFU: Final = _trainer("model_flops_utilization_ratio")
CHECKPOINT_STEP: Final = _trainer("checkpoint_step")
CHECKPOINT_WRITE_SECONDS: Final = _trainer("checkpoint_write_seconds")
SAVE_SECONDS: Final = _trainer("save_seconds")
"""The run file's `saveSeconds`, rounded up: what a save may take."""
CHECKPOINT_SIZE: Final = _trainer("checkpoint_size_bytes")
CHECKPOINT_COMMIT_TIME: Final = _trainer("checkpoint_commit_timestamp_seconds")
VOLUME_SIZE: Final = _trainer("volume_size_bytes")
VOLUME_FREE: Final = _trainer("volume_free_bytes")
"""Free space of the volume of the run directory, measured at the start and after each checkpoint."""
VOLUME_SYNC_SECONDS: Final = _trainer("volume_sync_seconds")
"""Time that the line of the newest event took to reach the volume (fsync)."""
RESUMES_DUE: Final = _trainer("resumes_due")
"""Attempts after a save of an earlier one, since the run began; not of runs with groups, as RESUMES_DONE."""
RESUMES_DONE: Final = _trainer("resumes_done")
"""Those of RESUMES_DUE that loaded a checkpoint."""
EVENTS: Final = _trainer("events_total", "event")
CULPRIT_TIME: Final = _trainer(
    "culprit_timestamp_seconds",
    *("symptom", "culprit_rank", "culprit_node", "culprit_pod"),
)
"""When a rank was last named as the cause of trouble; `node` and `pod` are those of the leading rank. The only
series of the job `culprits`."""


def _costs(name: str, help: str, *labels: str) -> Series:
    return Series(name=f"{COSTS_PREFIX}{name}", labels=labels, help=help)


# `trainyard cost enforce`: ops/budgets/control.py. Months are calendar months in UTC.
_LEDGER: Final = ("bucket", "team", "pool", "capacity")
LEDGER_SECONDS: Final = _costs("node_seconds", "Node-seconds of this month.", *_LEDGER)
LEDGER_USD: Final = _costs("usd", "Their price.", *_LEDGER)
LEDGER_UNPRICED: Final = _costs("unpriced_node_seconds", "Those without a known price.", *_LEDGER)
COSTS_RECORDED: Final = _costs("recorded_timestamp_seconds", "When the record was last written.")
BUDGET_USD: Final = _costs("budget_usd", "A team's limit of a month.", "team")
BUDGET_GPU_HOURS: Final = _costs("budget_gpu_hours", "A team's limit of a month.", "team")
BUDGET_SPENT_USD: Final = _costs(
    "spent_usd", "Price of the nodes that a team's runs held this month.", "team"
)
BUDGET_SPENT_GPU_HOURS: Final = _costs(
    "spent_gpu_hours", "GPU-hours that a team's runs held this month.", "team"
)
BUDGET_RATE: Final = _costs(
    "usd_per_hour", "Price of the nodes that a team's runs hold now.", "team"
)
BUDGET_USED: Final = _costs(
    "budget_used_ratio", "Used part of the limit that is used most.", "team"
)
BUDGET_STATE: Final = _costs(
    "budget_state", "1 for what is in force for a team, else 0.", "team", "state"
)
"""`state`: ok, warned, held, drained or overridden."""
BUDGET_OVERRIDE_END: Final = _costs(
    "budget_override_end_timestamp_seconds", "End of a team's override.", "team"
)
"""Only while an override holds."""
BUDGET_DECIDED: Final = _costs(
    "budget_decided_timestamp_seconds",
    "When a complete reading of a team was last decided on.",
    "team",
)
# `trainyard spot steer`: ops/steer/control.py.
STEERING_LOOKED: Final = Series(
    name=f"{STEERING_PREFIX}looked_timestamp_seconds",
    help="When the cluster was last looked at.",
)
STEERING_MOVES: Final = Series(
    name=f"{STEERING_PREFIX}moves_total",
    labels=("team", "pool", "to"),
    help="Runs that were moved off a pool.",
)
STEERING_LOSSES: Final = Series(
    name=f"{STEERING_PREFIX}losses_per_node_hour",
    labels=("pool", "type", "zone"),
    help="Losses of a node in an hour, as learnt with the prior.",
)

# The log shipper: log_patterns.py.
LOG_MATCHES: Final = Series(name="trainyard_log_matches_total", labels=("pattern", *_POD, "run_id"))

# Kueue 0.19, pkg/metrics.
PENDING: Final = _kueue("pending_workloads", "cluster_queue", "status")
"""`status`: Kueue retries `active` workloads by itself, `inadmissible` ones only after a change."""
ADMITTED_ACTIVE: Final = _kueue("admitted_active_workloads", "cluster_queue")
ADMITTED_TOTAL: Final = _kueue("admitted_workloads_total", "cluster_queue", "priority_class")
ADMISSION_WAIT: Final = _kueue(
    "admission_wait_time_seconds_bucket", "cluster_queue", "priority_class", "le"
)
EVICTED: Final = _kueue("evicted_workloads_total", "cluster_queue", "reason", "priority_class")
QUEUE_STATUS: Final = _kueue("cluster_queue_status", "cluster_queue", "status")
_QUOTA: Final = ("cohort", "cluster_queue", "flavor", "resource")
QUOTA_NOMINAL: Final = _kueue("cluster_queue_nominal_quota", *_QUOTA)
QUOTA_USED: Final = _kueue("cluster_queue_resource_usage", *_QUOTA)
QUOTA_RESERVED: Final = _kueue("cluster_queue_resource_reservation", *_QUOTA)
"""The quota series require Kueue's `metrics.enableClusterQueueResources`."""

# kube-state-metrics 2.18.
POD_INFO: Final = _state("pod_info", *_POD, "node")
POD_LABEL_INFO: Final = _state("pod_labels", *_POD, *map(state_label, POD_LABELS))
POD_PHASE: Final = _state("pod_status_phase", *_POD, "phase")
POD_RESTARTS: Final = _state("pod_container_status_restarts_total", *_POD, "container")
POD_REQUESTS: Final = _state(
    "pod_container_resource_requests", *_POD, "node", "container", "resource", "unit"
)
POD_TERMINATED: Final = _state("pod_container_status_last_terminated_reason", *_POD, "reason")
NODE_LABEL_INFO: Final = _state("node_labels", "node", *map(state_label, NODE_LABELS))
NODE_CONDITION: Final = _state("node_status_condition", "node", "condition", "status")
NODE_ALLOCATABLE: Final = _state("node_status_allocatable", "node", "resource", "unit")
NODE_CREATED: Final = _state("node_created", "node")
NODE_CORDONED: Final = _state("node_spec_unschedulable", "node")
JOB_OWNER: Final = _state("job_owner", "namespace", "job_name", "owner_kind", "owner_name")
JOB_FAILED: Final = _state("job_failed", "namespace", "job_name", "condition")
JOB_COMPLETE: Final = _state("job_complete", "namespace", "job_name", "condition")
JOB_START: Final = _state("job_status_start_time", "namespace", "job_name")
CRONJOB_SUCCEEDED: Final = _state("cronjob_status_last_successful_time", "namespace", "cronjob")
GPU_RESOURCE: Final = "nvidia_com_gpu"
"""kube-state-metrics' name for the resource `nvidia.com/gpu`."""

# The kubelet, for volumes whose driver reports usage.
VOLUME_CAPACITY: Final = Series(
    name="kubelet_volume_stats_capacity_bytes",
    labels=("namespace", "persistentvolumeclaim"),
)
VOLUME_AVAILABLE: Final = Series(
    name="kubelet_volume_stats_available_bytes",
    labels=("namespace", "persistentvolumeclaim"),
)

UP: Final = Series(name="up")
FIRING: Final = Series(name="ALERTS", labels=("alertname", "alertstate", "owner", "severity"))
"""Prometheus' own series of its alerting rules."""
REQUESTS: Final = Series(name="apiserver_request_total", labels=("verb", "resource", "code"))

# Recorded by recording.py.
_GPU: Final = ("node", "gpu", "UUID", "modelName", *_POD, "run_id", "team")
RUN_POD: Final = Series(name="trainyard:run_pod:info", labels=(*_RUN, "run"))
"""1 for every pod of a run that has not terminated."""
GPU_UTILIZATION: Final = Series(name="trainyard:gpu_utilization:ratio", labels=_GPU)
GPU_MEMORY_USED: Final = Series(name="trainyard:gpu_memory_used:bytes", labels=_GPU)
GPU_MEMORY_FREE: Final = Series(name="trainyard:gpu_memory_free:bytes", labels=_GPU)
GPU_POWER: Final = Series(name="trainyard:gpu_power:watts", labels=_GPU)
GPU_TEMPERATURE: Final = Series(name="trainyard:gpu_temperature:celsius", labels=_GPU)
GPU_CLOCK: Final = Series(name="trainyard:gpu_sm_clock:hertz", labels=_GPU)
GPU_TENSOR: Final = Series(name="trainyard:gpu_tensor_active:ratio", labels=_GPU)
GPU_XID: Final = Series(name="trainyard:gpu_xid:code", labels=_GPU)
GPU_XID_SEEN: Final = Series(name="trainyard:gpu_xid:seen", labels=("node", "gpu", "UUID", "xid"))
"""1 for every XID that a GPU reported within five minutes, and for its last one."""
GPU_ECC: Final = Series(name="trainyard:gpu_ecc_uncorrectable:count", labels=_GPU)
GPU_REMAP_FAILED: Final = Series(name="trainyard:gpu_row_remap_failed:bool", labels=_GPU)

_OF_RUN: Final = ("namespace", "run_id", "team")
RUN_GPU_UTILIZATION: Final = Series(name="trainyard:run_gpu_utilization:ratio", labels=_OF_RUN)
RUN_RECLAIMED: Final = Series(name="trainyard:run_reclaimed:bool", labels=("namespace", "run_id"))
"""1 for a run that had a pod on a spot node within half an hour, if that node is leaving or gone."""
RUN_GPUS: Final = Series(name="trainyard:run_gpus:count", labels=_OF_RUN)
RUN_LOADER: Final = Series(name="trainyard:run_loader:ratio", labels=_OF_RUN)
RUN_COLLECTIVE: Final = Series(name="trainyard:run_collective:ratio", labels=_OF_RUN)
RUN_TOKENS: Final = Series(name="trainyard:run_tokens:rate5m", labels=_OF_RUN)

VOLUME_FREE_RATIO: Final = Series(
    name="trainyard:volume_free:ratio", labels=("namespace", "persistentvolumeclaim")
)
"""From the kubelet; for drivers that report no usage (FSx for Lustre), from runs that write there."""

NODE_INFO: Final = Series(
    name="trainyard:node:info", labels=("node", "pool", "capacity", "instance_type", "workload")
)
"""1 for every node of a pool. `capacity` is how it was bought: spot, on-demand or reserved. `workload` is
`gpu-training`, or absent on CPU nodes."""
NODE_PRICE: Final = Series(
    name="trainyard:node_price:usd_per_hour",
    labels=("instance_type", "capacity"),
)
"""For the instance types of the stack's pools, spot, on-demand and reserved; see infra/domain/prices."""
NODE_COST: Final = Series(
    name="trainyard:node_cost:usd_per_hour",
    labels=("node", "pool", "capacity", "instance_type"),
)
RUN_COST: Final = Series(name="trainyard:run_cost:usd_per_hour", labels=(*_OF_RUN, "capacity"))
"""The share of its nodes' price that corresponds to the GPUs that its pods hold."""
TEAM_BUDGET: Final = Series(name="trainyard:team_budget:usd_per_hour", labels=("team",))
"""`onDemandUsdPerHour` of teams that set it."""

COSTS_EXPECTED: Final = Series(name="trainyard:costs_expected:bool")
"""1 in a stack with the add-on `costs`."""
STEERING_EXPECTED: Final = Series(name="trainyard:steering_expected:bool")
"""1 in a stack with the add-on `steering`."""
IDLE_COST: Final = Series(name="trainyard:idle_cost:usd_per_hour", labels=("pool", "capacity"))
"""The share of GPU nodes' price that corresponds to unused GPUs."""

ALL: Final[Mapping[str, Series]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Series)
}
"""Every series above, by its name."""
KNOWN: Final = frozenset(ALL) | {
    name for field in (*dcgm.FIELDS, dcgm.XID_COUNT) for name in field.names
}
"""Every name that a rule or a panel may use."""
