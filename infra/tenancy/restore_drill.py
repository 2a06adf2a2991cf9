"""Restore drill: a CronJob that restores and verifies the newest checkpoints of a team's runs.

It mounts the team's checkpoint volume read-only and restores into the pod's scratch space. A failed Job raises
an alert (kube_job_failed).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.domain import quantity
from infra.kubernetes.objects import Manifest
from infra.sections.teams import RestoreDrillConfig
from infra.tenancy import scheduled

NAME: Final = "restore-drill"
CONTAINER: Final = "drill"

_SCRATCH_MOUNT: Final = "/scratch"

OVERHEAD: Final = 1024**3
"""Bytes that a restore needs besides the checkpoint: torch in memory, a manifest on disk."""


def cron_job(
    team: str, drill: RestoreDrillConfig, image: str, node_selector: Mapping[str, str]
) -> Manifest:
    """Return the CronJob; `kubectl get cronjob restore-drill` shows when it last ran.

    `image`: the trainer's, by digest. `node_selector`: never a GPU node, whose taint the pod does not tolerate.
    """
    largest = quantity.bytes_(drill.largest)
    memory = quantity.memory(largest + OVERHEAD)
    job = scheduled.Scheduled(
        name=NAME,
        container=CONTAINER,
        image=image,
        schedule=drill.schedule,
        command=[
            *("python", "-m", "trainer.drills", scheduled.CHECKPOINTS_MOUNT, *drill.stores),
            *("--scratch", _SCRATCH_MOUNT),
            *("--newest", str(drill.runs), "--largest", str(largest)),
        ],
        resources={"cpu": "1", "memory": memory},
        volumes=[
            {"name": "scratch", "emptyDir": {"sizeLimit": memory}},
        ],
        mounts=[{"name": "scratch", "mountPath": _SCRATCH_MOUNT}],
        node_selector=node_selector,
    )
    return scheduled.cron_job(team, job)
