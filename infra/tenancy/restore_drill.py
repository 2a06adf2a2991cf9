"""Restore drill: a CronJob that restores and verifies the newest checkpoints of a team's runs.

It mounts the team's checkpoint volume read-only and restores into the pod's scratch space. A failed Job raises
an alert (kube_job_failed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from infra.domain import quantity
from infra.kubernetes.objects import Manifest
from infra.tenancy import scheduled

NAME: Final = "restore-drill"
CONTAINER: Final = "drill"

_SCRATCH_MOUNT: Final = "/scratch"

OVERHEAD: Final = 1024**3
"""Bytes that a restore needs besides the checkpoint: torch in memory, a manifest on disk."""


@dataclass(frozen=True, kw_only=True)
class RestoreDrill:
    """Settings of a team's restore drill."""

    image: str
    """The trainer's, by digest."""
    schedule: str
    """Five cron fields, in UTC."""
    runs: int
    """Number of runs, those that saved last."""
    largest: int
    """Bytes; a larger checkpoint is read and verified but not restored."""
    stores: tuple[str, ...] = ()
    """Further locations: s3://BUCKET/PREFIX with a folder per run."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Node selector; never a GPU node, whose taint the pod does not tolerate."""

    @property
    def memory(self) -> int:
        """Bytes of memory, and of scratch space, that the pod requests."""
        return self.largest + OVERHEAD


def cron_job(team: str, drill: RestoreDrill) -> Manifest:
    """Return the CronJob; `kubectl get cronjob restore-drill` shows when it last ran."""
    job = scheduled.Scheduled(
        name=NAME,
        container=CONTAINER,
        image=drill.image,
        schedule=drill.schedule,
        command=[
            *("python", "-m", "trainer.drills", scheduled.CHECKPOINTS_MOUNT, *drill.stores),
            *("--scratch", _SCRATCH_MOUNT),
            *("--newest", str(drill.runs), "--largest", str(drill.largest)),
        ],
        resources={"cpu": "1", "memory": quantity.memory(drill.memory)},
        volumes=[
            {"name": "scratch", "emptyDir": {"sizeLimit": quantity.memory(drill.memory)}},
        ],
        mounts=[{"name": "scratch", "mountPath": _SCRATCH_MOUNT}],
        node_selector=drill.node_selector,
    )
    return scheduled.cron_job(team, job)
