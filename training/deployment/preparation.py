"""DatasetPreparation: a Job that converts a source to token shards for the runs that read them.

It needs no GPU and does not queue (docs/adr/0008). Nothing waits for it but the pods of runs: their init container
follows the Job's state file on the team's volume (docs/adr/0030).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pulumi

from infra.domain import naming, quantity
from infra.domain.platform import Platform
from infra.kubernetes import pod_security
from infra.kubernetes.objects import KubernetesObject, Manifest, metadata
from training import spec
from training.deployment.dataset import Preparation
from training.deployment.launchers import pod, pod_failure_policy
from training.prepare.state import UID_ENV

_CONTAINER: Final = "prepare"
_RETRIES: Final = 2
_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"


def _processes(preparation: Preparation) -> int:
    """Return a process for each core that the Job may use; a container does not see its limit."""
    return max(1, math.ceil(Decimal(quantity.millicores(preparation.resources.cpu)) / 1000))


def _command(preparation: Preparation) -> list[str]:
    given = {
        "--format": preparation.format,
        "--column": preparation.column,
        "--tokenizer": preparation.tokenizer,
    }
    return [
        *("python", "-m", "training.prepare"),
        *("--source", preparation.source),
        *(word for option, value in given.items() if value for word in (option, value)),
        *("--processes", str(_processes(preparation))),
        *("--state", preparation.state_file),
        *("--attempts", str(_RETRIES + 1)),
        *("--out", preparation.path),
    ]


def _environment(preparation: Preparation, platform: Platform) -> list[dict[str, Any]]:
    uid = {"fieldRef": {"fieldPath": f"metadata.labels['{_UID_LABEL}']"}}
    return [
        {"name": "HOME", "value": "/tmp"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        # The tokenizers' own threads would be one per core of the node.
        {"name": "RAYON_NUM_THREADS", "value": str(_processes(preparation))},
        {"name": UID_ENV, "valueFrom": uid},
        *pod.secret_variables(preparation.secrets, platform.teams[preparation.team].secrets),
    ]


def _container(preparation: Preparation, platform: Platform) -> dict[str, Any]:
    amounts = {"cpu": preparation.resources.cpu, "memory": preparation.resources.memory}
    return {
        "name": _CONTAINER,
        "image": preparation.image,
        "imagePullPolicy": "IfNotPresent",
        "command": _command(preparation),
        "workingDir": spec.WORKSPACE,
        "env": _environment(preparation, platform),
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
        "containers": [_container(preparation, platform)],
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
            annotations={naming.REPLACE_UNREADY: "true", naming.SKIP_AWAIT: "true"},
        ),
        "spec": {
            "backoffLimit": _RETRIES,
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
    """One preparation Job. Runs that depend on it are created after it, and wait for its end themselves."""

    def __init__(
        self, name: str, args: DatasetPreparationArgs, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(naming.training_type("DatasetPreparation"), name, None, opts)
        self.job = KubernetesObject(
            f"{name}-job",
            job(args.preparation, args.platform),
            pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"dataset": args.preparation.dataset})
