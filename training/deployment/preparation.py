"""DatasetPreparation: a Job that converts a source to token shards before the runs that read them.

It needs no GPU and does not queue (docs/adr/0008). Pulumi waits for its end, and runs depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pulumi

from infra.domain import naming
from infra.domain.platform import Platform
from infra.kubernetes import pod_security
from infra.kubernetes.objects import KubernetesObject, Manifest, metadata
from training import spec
from training.deployment.launchers import pod, pod_failure_policy
from training.spec import Dataset, RunSpec

_CONTAINER: Final = "prepare"
_HASH_CHARS: Final = 8
_CREATE_TIMEOUT: Final = "60m"


@dataclass(frozen=True, kw_only=True, order=True)
class Preparation:
    """One dataset of one team, prepared by one image: equal preparations run once."""

    team: str
    dataset: str
    source: str
    image: str

    @classmethod
    def for_run(cls, run: RunSpec) -> Preparation | None:
        """Return the preparation that a run needs; None when its dataset has no source."""
        if not run.dataset.source:
            return None
        return cls(
            team=run.team,
            dataset=run.dataset.name,
            source=run.dataset.source,
            image=run.image,
        )

    @property
    def name(self) -> str:
        """Name of the Job, derived from its contents: a Job's template cannot change."""
        parts = [self.team, self.dataset, self.source, self.image, spec.JOB_SPEC_REVISION]
        return f"prepare-{self.dataset}-{spec.content_hash(parts)[:_HASH_CHARS]}"


def _container(preparation: Preparation) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "2Gi"}
    return {
        "name": _CONTAINER,
        "image": preparation.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "python",
            "-m",
            "training.prepare",
            "--source",
            preparation.source,
            "--out",
            Dataset(name=preparation.dataset).path,
        ],
        "workingDir": spec.WORKSPACE,
        "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}],
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
        "volumeMounts": [
            {"name": "datasets", "mountPath": spec.DATA_MOUNT},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "securityContext": pod.restricted(),
    }


def _pod_spec(preparation: Preparation, platform: Platform) -> dict[str, Any]:
    team = platform.teams[preparation.team]
    cpu_pool = platform.cpu_pool
    return {
        "restartPolicy": "Never",
        "serviceAccountName": team.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security.pod_security_with_volumes(),
        **({"nodeSelector": {naming.POOL: cpu_pool.name}} if cpu_pool else {}),
        "containers": [_container(preparation)],
        "volumes": [
            {"name": "datasets", "persistentVolumeClaim": {"claimName": team.datasets_claim}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def job(preparation: Preparation, platform: Platform) -> Manifest:
    """Return the Job. It is kept when it has ended: its removal would be drift."""
    labels = naming.object_labels("dataset-preparation", preparation.team)
    labels[naming.DATASET] = preparation.dataset
    namespace = platform.teams[preparation.team].namespace
    rules = [
        pod_failure_policy.exit_code_rule("FailJob", spec.EXIT_BAD_CONFIG, _CONTAINER),
        pod_failure_policy.disruption_rule("Ignore"),
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            preparation.name,
            namespace=namespace,
            labels=labels,
            annotations={naming.REPLACE_UNREADY: "true"},
        ),
        "spec": {
            "backoffLimit": 2,
            "podFailurePolicy": {"rules": rules},
            "template": {
                "metadata": {"labels": dict(labels)},
                "spec": _pod_spec(preparation, platform),
            },
        },
    }


@dataclass(frozen=True, kw_only=True)
class DatasetPreparationArgs:
    """Arguments of DatasetPreparation."""

    preparation: Preparation
    platform: Platform


class DatasetPreparation(pulumi.ComponentResource):
    """One preparation Job. Resources that depend on it are created after it has ended."""

    def __init__(
        self, name: str, args: DatasetPreparationArgs, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(naming.training_type("DatasetPreparation"), name, None, opts)
        self.job = KubernetesObject(
            f"{name}-job",
            job(args.preparation, args.platform),
            pulumi.ResourceOptions(
                parent=self, custom_timeouts=pulumi.CustomTimeouts(create=_CREATE_TIMEOUT)
            ),
        )
        self.register_outputs({"dataset": args.preparation.dataset})
