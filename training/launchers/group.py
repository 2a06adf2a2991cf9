"""What object and pods of a replica group have beyond those of a gang; nothing for a run without groups."""

from __future__ import annotations

import json
from typing import Any, Final

from infra.domain import naming
from training.spec import RunSpec
from trainyard.contract import GROUPS_ENV, READY_FILE_ENV

_READY_FILE: Final = "/tmp/trainyard-ready"
_READY_EVERY_S: Final = 5


def number_label(run: RunSpec) -> dict[str, str]:
    return {} if run.group is None else {naming.GROUP: str(run.group)}


def run_labels(run: RunSpec) -> dict[str, str]:
    """Return labels by which the object of a group tells of the whole run."""
    if run.groups is None:
        return {}
    return {naming.GROUPS: str(run.groups.count), naming.GROUPS_MIN: str(run.groups.min)}


def environment(run: RunSpec) -> list[dict[str, Any]]:
    if run.groups is None:
        return []
    groups = run.groups
    numbers = {"min": groups.min, "max": groups.max, "spares": groups.spares}
    return [
        {"name": READY_FILE_ENV, "value": _READY_FILE},
        {"name": GROUPS_ENV, "value": json.dumps(numbers)},
    ]


def readiness(run: RunSpec) -> dict[str, Any]:
    """Return the container's probe: its pod is ready while its group takes part.

    Kueue takes the nodes of a gang back whose pods are not ready for long.
    """
    if run.groups is None:
        return {}
    probe = {
        "exec": {"command": ["test", "-e", _READY_FILE]},
        "periodSeconds": _READY_EVERY_S,
        "failureThreshold": 1,
    }
    return {"readinessProbe": probe}
