"""Restore drill: a CronJob that restores and verifies the newest checkpoints of a team's runs.

It mounts the team's checkpoint volume read-only and restores into the pod's scratch space. A failed Job raises
an alert (kube_job_failed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.domain import naming, quantity
from infra.kubernetes import pod_security
from infra.kubernetes.objects import Manifest, metadata

NAME: Final = "restore-drill"
CONTAINER: Final = "drill"

CHECKPOINTS_MOUNT: Final = "/checkpoints"
WORKSPACE: Final = "/workspace"
"""Equal to those of training.spec, by a test."""
_SCRATCH_MOUNT: Final = "/scratch"

OVERHEAD: Final = 1024**3
"""Bytes that a restore needs besides the checkpoint: torch in memory, a manifest on disk."""

_DEADLINE_S: Final = 6 * 3600
_STARTS_LATE_S: Final = 3600
_KEPT_S: Final = 7 * 24 * 3600
"""After a week a manually created Job, and the alert of a failed one, disappear."""


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
    labels = naming.object_labels(NAME, team)
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(NAME, namespace=naming.namespace(team), labels=labels),
        "spec": {
            "schedule": drill.schedule,
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": _STARTS_LATE_S,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {"metadata": {"labels": dict(labels)}, "spec": _job(labels, drill)},
        },
    }


def _job(labels: Mapping[str, str], drill: RestoreDrill) -> dict[str, Any]:
    return {
        # A failure is reported at once; the program itself retries what may succeed.
        "backoffLimit": 0,
        "activeDeadlineSeconds": _DEADLINE_S,
        "ttlSecondsAfterFinished": _KEPT_S,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                }
            ]
        },
        "template": {"metadata": {"labels": dict(labels)}, "spec": _pod(drill)},
    }


def _pod(drill: RestoreDrill) -> dict[str, Any]:
    selector = {"nodeSelector": dict(drill.node_selector)} if drill.node_selector else {}
    return {
        "restartPolicy": "Never",
        # This account has the team's role, and so access to its prefix of the buckets.
        "serviceAccountName": naming.SERVICE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": pod_security.pod_security_with_volumes(),
        **selector,
        "containers": [_container(drill)],
        "volumes": [
            {
                "name": "checkpoints",
                "persistentVolumeClaim": {"claimName": naming.CHECKPOINTS_CLAIM},
            },
            {"name": "scratch", "emptyDir": {"sizeLimit": quantity.memory(drill.memory)}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _container(drill: RestoreDrill) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": quantity.memory(drill.memory)}
    return {
        "name": CONTAINER,
        "image": drill.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            *("python", "-m", "training.drills", CHECKPOINTS_MOUNT, *drill.stores),
            *("--scratch", _SCRATCH_MOUNT),
            *("--newest", str(drill.runs), "--largest", str(drill.largest)),
        ],
        "workingDir": WORKSPACE,
        "env": [
            {"name": "HOME", "value": "/tmp"},
            {"name": "OMP_NUM_THREADS", "value": "1"},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
        "volumeMounts": [
            {"name": "checkpoints", "mountPath": CHECKPOINTS_MOUNT, "readOnly": True},
            {"name": "scratch", "mountPath": _SCRATCH_MOUNT},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
