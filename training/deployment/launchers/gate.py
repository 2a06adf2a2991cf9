"""What a run's pods do before the trainer when its file has `require`: measure their collectives, where they are.

See training/validation/gate.py for what happens there, and docs/adr/0023 for why it happens there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infra.domain import naming
from training.spec import RunSpec


def before(run: RunSpec, leader: str | None, command: Sequence[str]) -> list[str]:
    """The command of a pod whose own is `command`. `leader`: host name of the first pod; None for one node."""
    if run.collective_gbps is None:
        return list(command)
    return [
        *("python", "-m", "training.validation", "gate"),
        f"--gbps={run.collective_gbps:g}",
        f"--nodes={run.nodes}",
        f"--processes={run.processes_per_node}",
        f"--job={run.run_id}",
        *([f"--leader={leader}"] if leader else []),
        "--",
        *command,
    ]


def environment(run: RunSpec) -> list[dict[str, Any]]:
    """What the check says of where a pod is; nothing for a run that requires none."""
    if run.collective_gbps is None:
        return []
    fields = {
        "TRAINYARD_ZONE": f"metadata.labels['{naming.ZONE}']",
        "TRAINYARD_NODE": "spec.nodeName",
        "TRAINYARD_POD_IP": "status.podIP",
    }
    return [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]
