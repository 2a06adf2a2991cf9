"""Alerts, with their owner, severity and runbook.

Each has a page of its name in docs/runbooks, an owner (`platform` operates the stack, `team` the training) and a
severity: `page` needs a response at any hour, `ticket` during working hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from infra.observability.alert_expressions import (
    BUDGET_BURN,
    CHECKPOINT_FAILED,
    CHECKPOINT_SLOW,
    GPU_ERROR,
    GPU_METRICS_MISSING,
    LOADER_STARVATION,
    LOW_UTILIZATION,
    NCCL_TIMEOUT,
    NODE_PRESSURE,
    PENDING_TOO_LONG,
    RESTART_LOOP,
    RESTORE_DRILL_FAILED,
    RESUME_FAILED,
    RUN_FAILED,
    STUCK_ADMISSION,
    TARGET_DOWN,
    UTILIZATION_HINT,
    VALIDATION_FAILED,
    VOLUME_FULL,
)
from infra.observability.recording import INTERVAL, Group

RUNBOOKS: Final = "docs/runbooks"
PLATFORM, TEAM = "platform", "team"
PAGE, TICKET = "page", "ticket"


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One alerting rule."""

    name: str
    expression: str
    owner: str
    """`platform` or `team`."""
    severity: str
    """`page` or `ticket`."""
    summary: str
    """One line, with the labels that identify the subject."""
    description: str
    """The meaning, and what to check first."""
    lasting: str = "0m"
    """How long the expression must hold, as a Prometheus duration."""

    @property
    def runbook(self) -> str:
        """The path of the runbook in this repository."""
        return f"{RUNBOOKS}/{self.name}.md"

    def rule(self, runbook_base: str = "") -> dict[str, Any]:
        """Return the rule as in a rule file; `runbook_base` is a URL that precedes the runbook's path."""
        base = f"{runbook_base.rstrip('/')}/" if runbook_base else ""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.lasting,
            "labels": {"owner": self.owner, "severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook": f"{base}{self.runbook}",
            },
        }


_RUN: Final = "{{ $labels.run_id }} of team {{ $labels.team }}"

_RUNS: Final = (
    Alert(
        name="LowGpuUtilization",
        expression=LOW_UTILIZATION,
        lasting="15m",
        owner=TEAM,
        severity=TICKET,
        summary="GPUs of {{ $labels.namespace }}/{{ $labels.pod }} are mostly idle",
        description="GPUs that this pod holds were busy for less than 40 % of the time, "
        "{{ $value | humanizePercentage }} now. They cost as much as busy ones.",
    ),
    Alert(
        name="SlowLoaderHint",
        expression=UTILIZATION_HINT,
        lasting="30m",
        owner=TEAM,
        severity=TICKET,
        summary=f"Run {_RUN} leaves its GPUs waiting",
        description="Its GPUs are busy {{ $value | humanizePercentage }} of the time. Below 60 % the "
        "data loader is the usual cause: more loader workers, before more GPUs.",
    ),
    Alert(
        name="LoaderStarvation",
        expression=LOADER_STARVATION,
        lasting="15m",
        owner=TEAM,
        severity=TICKET,
        summary=f"Run {_RUN} waits for data",
        description="{{ $value | humanizePercentage }} of its steps' time goes into waiting for samples.",
    ),
    Alert(
        name="CheckpointSlow",
        expression=CHECKPOINT_SLOW,
        lasting="5m",
        owner=PLATFORM,
        severity=TICKET,
        summary=f"Checkpoints of run {_RUN} are slow",
        description="The newest took {{ $value | humanizeDuration }}: more than 15 minutes, or more than a "
        "minute and twice the median of six hours. A notice of two minutes may not be enough any more.",
    ),
    Alert(
        name="CheckpointFailed",
        expression=CHECKPOINT_FAILED,
        owner=PLATFORM,
        severity=PAGE,
        summary=f"Run {_RUN} cannot write checkpoints",
        description="It trains on, and all since its last good checkpoint is lost with the next interruption.",
    ),
    Alert(
        name="ResumeFailed",
        expression=RESUME_FAILED,
        owner=TEAM,
        severity=PAGE,
        summary=f"Run {_RUN} found a checkpoint that it cannot load",
        description="Either it went on from an older one, or none is good and it cannot go on.",
    ),
    Alert(
        name="PodRestartLoop",
        expression=RESTART_LOOP,
        owner=TEAM,
        severity=TICKET,
        summary=f"Run {_RUN} starts again and again",
        description="{{ $value | humanize }} new starts within the hour.",
    ),
    Alert(
        name="RunFailed",
        expression=RUN_FAILED,
        lasting="5m",
        owner=TEAM,
        severity=TICKET,
        summary=f"Run {_RUN} has failed",
        description="It is not started again: its own error came as often as it may, or its configuration "
        "cannot work.",
    ),
    Alert(
        name="TrainingPodPending",
        expression=PENDING_TOO_LONG,
        lasting="10m",
        owner=PLATFORM,
        severity=TICKET,
        summary="{{ $labels.namespace }}/{{ $labels.pod }} finds no node",
        description=f"A pod of run {_RUN} is admitted and has been Pending for 10 minutes.",
    ),
    Alert(
        name="NcclTimeout",
        expression=NCCL_TIMEOUT,
        lasting="2m",
        owner=PLATFORM,
        severity=PAGE,
        summary=f"Ranks of run {_RUN} do not reach each other",
        description="Its logs tell of a collective that timed out: network interface, MTU, firewall, "
        "a lost node, or one rank that hangs.",
    ),
)

_STACK: Final = (
    Alert(
        name="NodePressure",
        expression=NODE_PRESSURE,
        lasting="5m",
        owner=PLATFORM,
        severity=PAGE,
        summary="GPU node {{ $labels.node }} reports {{ $labels.condition }}",
        description="The kubelet evicts pods next, and with one pod the whole gang.",
    ),
    Alert(
        name="GpuHardwareError",
        expression=GPU_ERROR,
        owner=PLATFORM,
        severity=PAGE,
        summary="GPU {{ $labels.gpu }} of node {{ $labels.node }} is damaged ({{ $labels.error }})",
        description="What it computes cannot be trusted: take the node out.",
    ),
    Alert(
        name="StuckAdmission",
        expression=STUCK_ADMISSION,
        lasting="15m",
        owner=PLATFORM,
        severity=PAGE,
        summary="Queue {{ $labels.cluster_queue }} admits nothing, though it has quota",
        description="{{ $value | humanize }} runs wait, GPUs of its own quota are free, nothing was admitted "
        "for 30 minutes, and no run that holds the rest explains it.",
    ),
    Alert(
        name="BudgetBurn",
        expression=BUDGET_BURN,
        lasting="15m",
        owner=PLATFORM,
        severity=TICKET,
        summary="{{ $labels.scope }} costs more than its budget",
        description="{{ $value | humanizePercentage }} of the budget an hour, at the catalog's prices.",
    ),
    Alert(
        name="VolumeAlmostFull",
        expression=VOLUME_FULL,
        lasting="5m",
        owner=PLATFORM,
        severity=PAGE,
        summary="{{ $labels.namespace }}/{{ $labels.persistentvolumeclaim }} is almost full",
        description="{{ $value | humanizePercentage }} of it is free. Checkpoints fail when nothing is.",
    ),
    Alert(
        name="RestoreDrillFailed",
        expression=RESTORE_DRILL_FAILED,
        owner=PLATFORM,
        severity=PAGE,
        summary="Checkpoints of {{ $labels.namespace }} could not be restored",
        description="The newest restore drill failed, and none has succeeded since.",
    ),
    Alert(
        name="ValidationFailed",
        expression=VALIDATION_FAILED,
        owner=PLATFORM,
        severity=TICKET,
        summary="Validation {{ $labels.job_name }} failed",
        description="A smoke or collective test of nodes failed; its log's last line says why.",
    ),
    Alert(
        name="GpuMetricsMissing",
        expression=GPU_METRICS_MISSING,
        lasting="15m",
        owner=PLATFORM,
        severity=TICKET,
        summary="GPU node {{ $labels.node }} exports no GPU metrics",
        description="It has GPUs to give, and no alert would tell what they do.",
    ),
    Alert(
        name="MonitoringTargetDown",
        expression=TARGET_DOWN,
        lasting="10m",
        owner=PLATFORM,
        severity=PAGE,
        summary="{{ $labels.job }} cannot be scraped",
        description="What it would tell is missing from every alert and dashboard.",
    ),
)

ALERTS: Final = (*_RUNS, *_STACK)


def groups(runbook_base: str = "") -> list[Group]:
    """Return the alerts as groups of a rule file."""
    return list(_groups(runbook_base))


def _groups(runbook_base: str) -> Iterator[Group]:
    for name, alerts in (("trainyard-alerts-runs", _RUNS), ("trainyard-alerts-stack", _STACK)):
        rules = [alert.rule(runbook_base) for alert in alerts]
        yield {"name": name, "interval": INTERVAL, "rules": rules}
