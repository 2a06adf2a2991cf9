"""The measurement that precedes the trainer in each pod when the run file has `require`.

See trainer/validation/gang.py for what it does, and docs/adr/08-runs.md for why it runs in the run's own pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infra.domain import naming
from training.spec import RunSpec


def before(run: RunSpec, leader: str | None, command: Sequence[str]) -> list[str]:
    """Return the pod's command after the measurement. `leader`: host name of the first pod; None: one node."""
    if run.collective_gbps is None:
        return list(command)
    return [
        *("python", "-m", "trainer.validation", "gate"),
        f"--gbps={run.collective_gbps:g}",
        f"--nodes={run.nodes}",
        f"--processes={run.processes_per_node}",
        f"--job={run.gang_id}",
        *([f"--leader={leader}"] if leader else []),
        "--",
        *command,
    ]


def environment(run: RunSpec) -> list[dict[str, Any]]:
    """Return the variable with the pod's zone for the report; none without `require`."""
    if run.collective_gbps is None:
        return []
    zone = {"fieldRef": {"fieldPath": f"metadata.labels['{naming.ZONE}']"}}
    return [{"name": "TRAINYARD_ZONE", "valueFrom": zone}]
