"""CronJobs of a team that read its checkpoint volume: restore drills and copies of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes import pod_security
from infra.kubernetes.objects import Manifest, metadata

CHECKPOINTS_MOUNT: Final = "/checkpoints"
WORKSPACE: Final = "/workspace"
"""Equal to those of training.spec, by a test."""

_KEPT_S: Final = 7 * 24 * 3600
"""After a week a manually created Job, and the alert of a failed one, disappear."""


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """A program of the trainer's image that reads the team's checkpoint volume at set times."""

    name: str
    container: str
    image: str
    """The trainer's, by digest."""
    schedule: str
    """Five cron fields, in UTC."""
    command: Sequence[str]
    resources: Mapping[str, str]
    """Requests and equal limits."""
    env: Sequence[Mapping[str, Any]] = ()
    volumes: Sequence[Mapping[str, Any]] = ()
    """Besides the checkpoints and /tmp."""
    mounts: Sequence[Mapping[str, Any]] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Node selector; never a GPU node, whose taint the pod does not tolerate."""
    starts_late_s: int = 3600
    deadline_s: int = 6 * 3600


def cron_job(team: str, job: Scheduled) -> Manifest:
    """Return the CronJob; `kubectl get cronjob NAME` shows when it last ran."""
    labels = naming.object_labels(job.name, team)
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(job.name, namespace=naming.namespace(team), labels=labels),
        "spec": {
            "schedule": job.schedule,
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": job.starts_late_s,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {"metadata": {"labels": dict(labels)}, "spec": _job(labels, job)},
        },
    }


def _job(labels: Mapping[str, str], job: Scheduled) -> dict[str, Any]:
    return {
        # A failure is reported at once; the program itself retries what may succeed.
        "backoffLimit": 0,
        "activeDeadlineSeconds": job.deadline_s,
        "ttlSecondsAfterFinished": _KEPT_S,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                }
            ]
        },
        "template": {"metadata": {"labels": dict(labels)}, "spec": _pod(job)},
    }


def _pod(job: Scheduled) -> dict[str, Any]:
    selector = {"nodeSelector": dict(job.node_selector)} if job.node_selector else {}
    return {
        "restartPolicy": "Never",
        # This account has the team's role, and so access to its prefix of the buckets.
        "serviceAccountName": naming.SERVICE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": pod_security.pod_security_with_volumes(),
        **selector,
        "containers": [_container(job)],
        "volumes": [
            {
                "name": "checkpoints",
                "persistentVolumeClaim": {"claimName": naming.CHECKPOINTS_CLAIM},
            },
            *(dict(volume) for volume in job.volumes),
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _container(job: Scheduled) -> dict[str, Any]:
    return {
        "name": job.container,
        "image": job.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(job.command),
        "workingDir": WORKSPACE,
        "env": [
            {"name": "HOME", "value": "/tmp"},
            {"name": "OMP_NUM_THREADS", "value": "1"},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            *(dict(variable) for variable in job.env),
        ],
        "resources": {"requests": dict(job.resources), "limits": dict(job.resources)},
        "volumeMounts": [
            {"name": "checkpoints", "mountPath": CHECKPOINTS_MOUNT, "readOnly": True},
            *(dict(mount) for mount in job.mounts),
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "securityContext": pod_security.container_security(),
    }
