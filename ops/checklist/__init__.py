"""The production checklist: fourteen rows, each with what shows it on the live stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ops.checklist import nodes, proofs, spending, walls, watching, workloads
from ops.checklist.observed import Observed
from ops.ready.outcome import Row

ROWS: Final[tuple[Callable[[Observed], Row], ...]] = (
    nodes.gpu_nodes,
    nodes.labels_and_taints,
    workloads.gpu_scheduling,
    proofs.gpu_validation,
    workloads.images,
    workloads.run_metadata,
    proofs.single_node,
    proofs.multi_node,
    proofs.nccl,
    proofs.checkpointing,
    watching.observability,
    watching.alerts,
    spending.cost_controls,
    walls.security,
)


def checklist(observed: Observed) -> list[Row]:
    """All rows, in this order. Pure."""
    return [row(observed) for row in ROWS]
