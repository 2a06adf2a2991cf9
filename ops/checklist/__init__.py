"""The production checklist: fourteen rows with evidence from the live stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ops.checklist import cost_controls, evidence, isolation, monitoring_rows, nodes, workloads
from ops.checklist.snapshot import ChecklistSnapshot
from ops.ready.outcome import Row

ROWS: Final[tuple[Callable[[ChecklistSnapshot], Row], ...]] = (
    nodes.gpu_nodes,
    nodes.labels_and_taints,
    workloads.gpu_scheduling,
    evidence.gpu_validation,
    workloads.images,
    workloads.run_metadata,
    evidence.single_node,
    evidence.multi_node,
    evidence.nccl,
    evidence.checkpointing,
    monitoring_rows.observability,
    monitoring_rows.alerts,
    cost_controls.cost_controls,
    isolation.security,
)


def checklist(snapshot: ChecklistSnapshot) -> list[Row]:
    """Evaluate all rows in this order. Pure."""
    return [row(snapshot) for row in ROWS]
