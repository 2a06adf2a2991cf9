"""Copies of results: a CronJob that brings the copies of a team's runs in its bucket up to date.

It mounts the team's checkpoint volume read-only, so it needs nothing of the runs' images and sees runs that
failed, too. A failed Job raises an alert (kube_job_failed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest
from infra.tenancy import scheduled

CONTAINER: Final = "copy"
_RESOURCES: Final = {"cpu": "1", "memory": "1Gi"}
"""Parts in flight are 128 MiB."""
_DEADLINE_S: Final = 24 * 3600
"""The first copy of a volume with terabytes takes hours."""


@dataclass(frozen=True, kw_only=True)
class ResultsCopy:
    """Where a team's results are copied to, and when."""

    image: str
    """The trainer's, by digest."""
    schedule: str
    """Five cron fields, in UTC."""
    store: str
    """s3://BUCKET/PREFIX; a folder per run is below it."""
    secret: str = ""
    """Secret of the team with the credentials; empty: the role of the team's service account."""
    variables: tuple[str, ...] = ()
    """Environment variables of that secret."""
    node_selector: Mapping[str, str] = field(default_factory=dict)


def cron_job(team: str, copy: ResultsCopy) -> Manifest:
    """Return the CronJob; `kubectl get cronjob results-copy` shows when it last ran."""
    job = scheduled.Scheduled(
        name=naming.RESULTS_COPY,
        container=CONTAINER,
        image=copy.image,
        schedule=copy.schedule,
        command=["python", "-m", "trainer.results", scheduled.CHECKPOINTS_MOUNT, copy.store],
        resources=_RESOURCES,
        env=[
            {"name": key, "valueFrom": {"secretKeyRef": {"name": copy.secret, "key": key}}}
            for key in copy.variables
        ],
        node_selector=copy.node_selector,
        starts_late_s=300,
        deadline_s=_DEADLINE_S,
    )
    return scheduled.cron_job(team, job)
