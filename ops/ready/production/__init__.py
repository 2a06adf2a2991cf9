"""The last stage: fourteen production checks with evidence of the live stack, which start nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ops.ready.production import cost_controls, evidence, isolation, monitoring, nodes
from ops.ready.production.snapshot import StackSnapshot
from ops.ready.results import Check, StageResult

ROWS: Final[tuple[Callable[[StackSnapshot], Check], ...]] = (
    nodes.gpu_nodes,
    nodes.labels_and_taints,
    nodes.gpu_scheduling,
    evidence.gpu_validation,
    nodes.images,
    nodes.run_metadata,
    evidence.single_node,
    evidence.multi_node,
    evidence.nccl,
    evidence.checkpointing,
    monitoring.observability,
    monitoring.alerts,
    cost_controls.cost_controls,
    isolation.security,
)


NAME: Final = "production"
TITLE: Final = "the stack is ready for production"


def evaluate(snapshot: StackSnapshot) -> StageResult:
    """Evaluate all rows in this order. Pure."""
    return StageResult(stage=NAME, title=TITLE, checks=tuple(row(snapshot) for row in ROWS))
