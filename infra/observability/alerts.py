"""Alerts, with their owner, severity and runbook.

Each has a page of its name in docs/runbooks, an owner (`platform` operates the stack, `team` the training) and a
severity: `page` needs a response at any hour, `ticket` during working hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from infra.observability import series
from infra.observability.alert_expressions import (
    BUDGET_BURN,
    BUDGET_USED,
    CHECKPOINT_FAILED,
    CHECKPOINT_SLOW,
    GPU_ERROR,
    LOW_UTILIZATION,
    NCCL_TIMEOUT,
    NODE_PRESSURE,
    PENDING_TOO_LONG,
    RANK_CORRUPT,
    RANK_HUNG,
    RESTART_LOOP,
    RESTORE_DRILL_FAILED,
    RUN_FAILED,
    STUCK_ADMISSION,
    TARGET_DOWN,
    UTILIZATION_HINT,
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
_CULPRIT: Final = "rank {{ $labels.culprit_rank }}, node {{ $labels.culprit_node }}"

_RUNS: Final = (
    Alert(
        name="LowGpuUtilization",
        expression=LOW_UTILIZATION,
        lasting="5m",
        owner=TEAM,
        severity=TICKET,
        summary="GPUs of pod {{ $labels.namespace }}/{{ $labels.pod }} are mostly idle",
        description="The GPUs of this pod were busy {{ $value | humanizePercentage }} of the last 15 minutes, "
        "less than 40 %. Idle GPUs cost as much as busy ones.",
    ),
    Alert(
        name="SlowLoaderHint",
        expression=UTILIZATION_HINT,
        lasting="5m",
        owner=TEAM,
        severity=TICKET,
        summary=f"Run {_RUN} does not keep its GPUs busy",
        description="Its GPUs were busy {{ $value | humanizePercentage }} of the last 30 minutes. Below 60 % the "
        "data loader is the usual cause: speed it up before adding GPUs.",
    ),
    Alert(
        name="CheckpointSlow",
        expression=CHECKPOINT_SLOW,
        owner=PLATFORM,
        severity=TICKET,
        summary=f"Checkpoints of run {_RUN} are slow",
        description="A save of the last hour took {{ $value | humanizeDuration }}, longer than the run file's "
        "saveSeconds. A pod that is preempted is killed before such a save ends.",
    ),
    Alert(
        name="CheckpointFailed",
        expression=CHECKPOINT_FAILED,
        owner=PLATFORM,
        severity=PAGE,
        summary=f"Run {_RUN} cannot write or load checkpoints",
        description="If it trains, the next interruption loses all progress since the last good checkpoint. If it "
        "could not load one, it resumed from an older one, or stopped.",
    ),
    Alert(
        name="PodRestartLoop",
        expression=RESTART_LOOP,
        owner=TEAM,
        severity=TICKET,
        summary=f"Run {_RUN} restarts repeatedly",
        description="{{ $value | humanize }} restarts within one hour.",
    ),
    Alert(
        name="RunFailed",
        expression=RUN_FAILED,
        lasting="5m",
        owner=TEAM,
        severity=TICKET,
        summary=f"Run {_RUN} has failed",
        description="It does not restart: its own error occurred more often than allowed, or its "
        "configuration is invalid.",
    ),
    Alert(
        name="TrainingPodPending",
        expression=PENDING_TOO_LONG,
        lasting="10m",
        owner=PLATFORM,
        severity=TICKET,
        summary="Pod {{ $labels.namespace }}/{{ $labels.pod }} is not scheduled",
        description=f"Run {_RUN} is admitted, but this pod has been Pending for 10 minutes.",
    ),
    Alert(
        name="NcclTimeout",
        expression=NCCL_TIMEOUT,
        lasting="2m",
        owner=PLATFORM,
        severity=PAGE,
        summary=f"A collective of run {_RUN} timed out",
        description="Usual causes: network interface, MTU, firewall, a lost node, or a rank that hangs.",
    ),
)

_RANKS: Final = (
    Alert(
        name="RankHung",
        expression=RANK_HUNG,
        owner=PLATFORM,
        severity=PAGE,
        summary=f"A rank of run {_RUN} hangs or breaks the exchange ({_CULPRIT})",
        description="All other ranks wait for it, until the attempt ends and the gang restarts. A node on which "
        "that happens again must be replaced.",
    ),
    Alert(
        name="RankCorrupt",
        expression=RANK_CORRUPT,
        owner=PLATFORM,
        severity=PAGE,
        summary=f"A rank of run {_RUN} computes wrong values ({_CULPRIT})",
        description="Its replica differs from the others'. The run continues from the last step in which all "
        "agreed, but results of this node cannot be trusted: cordon it and remove its runs.",
    ),
)

_STACK: Final = (
    Alert(
        name="NodePressure",
        expression=NODE_PRESSURE,
        lasting="2m",
        owner=PLATFORM,
        severity=PAGE,
        summary="GPU node {{ $labels.node }} reports {{ $labels.condition }}",
        description="The kubelet evicts pods, or has done so already; evicting one pod stops its whole gang.",
    ),
    Alert(
        name="GpuHardwareError",
        expression=GPU_ERROR,
        owner=PLATFORM,
        severity=PAGE,
        summary="GPU {{ $labels.gpu }} of node {{ $labels.node }} has a hardware error ({{ $labels.error }})",
        description="Its results cannot be trusted: cordon the node and remove its runs.",
    ),
    Alert(
        name="StuckAdmission",
        expression=STUCK_ADMISSION,
        lasting="15m",
        owner=PLATFORM,
        severity=PAGE,
        summary="Queue {{ $labels.cluster_queue }} admits no runs although quota is free",
        description="{{ $value | humanize }} runs wait, GPUs of its own quota are free, and nothing was admitted "
        "for 30 minutes. Runs that hold the rest of the quota do not explain it.",
    ),
    Alert(
        name="BudgetBurn",
        expression=BUDGET_BURN,
        lasting="5m",
        owner=PLATFORM,
        severity=TICKET,
        summary="Cost of {{ $labels.scope }} exceeds its budget",
        description="{{ $value | humanizePercentage }} of the hourly budget in 15 minutes, at catalog prices.",
    ),
    Alert(
        name="VolumeAlmostFull",
        expression=VOLUME_FULL,
        lasting="5m",
        owner=PLATFORM,
        severity=PAGE,
        summary="Volume {{ $labels.namespace }}/{{ $labels.persistentvolumeclaim }} is almost full",
        description="{{ $value | humanizePercentage }} is free. Checkpoints fail when the volume is full.",
    ),
    Alert(
        name="RestoreDrillFailed",
        expression=RESTORE_DRILL_FAILED,
        owner=PLATFORM,
        severity=PAGE,
        summary="The restore drill of {{ $labels.namespace }} failed",
        description="Checkpoints may not be restorable. No drill has succeeded since.",
    ),
    Alert(
        name="MonitoringTargetDown",
        expression=TARGET_DOWN,
        lasting="5m",
        owner=PLATFORM,
        severity=PAGE,
        summary="{{ $labels.job }} does not report",
        description="It cannot be scraped, so its metrics are missing from all alerts and dashboards. Or costs or "
        "steering did nothing for 15 minutes: a team over its budget is not held, or runs are not moved.",
    ),
    Alert(
        name="BudgetUsed",
        expression=BUDGET_USED,
        owner=TEAM,
        severity=TICKET,
        summary="Month's budget of team {{ $labels.team }}: {{ $labels.state }}",
        description="{{ $value | humanizePercentage }} of the limit is used. warned: at the limit the budget's "
        "action follows. held: runs continue, no other starts. drained: runs on spot nodes and of low "
        "priority have saved and stopped.",
    ),
)

ALERTS: Final = (*_RUNS, *_RANKS, *_STACK)
RANK_ALERTS: Final = tuple(alert.name for alert in _RANKS)
"""Evaluated every few seconds, and sent without waiting for others like them: a whole gang waits for one rank."""


def groups(runbook_base: str = "") -> list[Group]:
    """Return the alerts as groups of a rule file."""
    return list(_groups(runbook_base))


def _groups(runbook_base: str) -> Iterator[Group]:
    for name, interval, alerts in (
        ("trainyard-alerts-runs", INTERVAL, _RUNS),
        ("trainyard-alerts-ranks", series.CULPRITS_INTERVAL, _RANKS),
        ("trainyard-alerts-stack", INTERVAL, _STACK),
    ):
        rules = [alert.rule(runbook_base) for alert in alerts]
        yield {"name": name, "interval": interval, "rules": rules}
