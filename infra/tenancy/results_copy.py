"""Copies of results: a CronJob that brings the copies of a team's runs in its bucket up to date.

It mounts the team's checkpoint volume read-only, so it needs nothing of the runs' images and sees runs that
failed, too. A failed Job raises an alert (kube_job_failed).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest
from infra.sections.teams import TeamConfig
from infra.tenancy import scheduled

CONTAINER: Final = "copy"
_RESOURCES: Final = {"cpu": "1", "memory": "1Gi"}
"""Parts in flight are 128 MiB."""
_DEADLINE_S: Final = 24 * 3600
"""The first copy of a volume with terabytes takes hours."""


def cron_job(
    team: TeamConfig, image: str, store: str, node_selector: Mapping[str, str]
) -> Manifest:
    """Return the CronJob; `kubectl get cronjob results-copy` shows when it last ran.

    `image`: the trainer's, by digest. `store`: s3://BUCKET/PREFIX, where the team names none; a folder per run is
    below it. Without a Secret of its own the job has the role of the team's service account.
    """
    copy = team.results
    variables = next((one.env for one in team.secrets if one.name == copy.secret_name), ())
    job = scheduled.Scheduled(
        name=naming.RESULTS_COPY,
        container=CONTAINER,
        image=image,
        schedule=copy.schedule,
        command=[
            "python",
            "-m",
            "trainer.results",
            scheduled.CHECKPOINTS_MOUNT,
            copy.store or store,
        ],
        resources=_RESOURCES,
        env=[
            {"name": key, "valueFrom": {"secretKeyRef": {"name": copy.secret_name, "key": key}}}
            for key in variables
        ],
        node_selector=node_selector,
        starts_late_s=300,
        deadline_s=_DEADLINE_S,
    )
    return scheduled.cron_job(team.name, job)
