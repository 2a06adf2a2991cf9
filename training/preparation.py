"""The Job that brings a dataset or a model to the team's volume, for the runs that read it.

It needs no GPU and does not queue. Nothing waits for it but the pods of runs: their init container follows the
Job's state file on the team's volume. Why: docs/adr/13-data-and-models.md.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final

from infra.domain import naming, quantity
from infra.domain.platform import Platform
from infra.kubernetes import pod_security
from infra.kubernetes.objects import Manifest, metadata
from trainer.prepare.state import UID_ENV
from training.launchers import pod, pod_failure_policy
from training.needs import Need
from training.weights import WeightsFetch
from trainyard import contract

_RETRIES: Final = 2
_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"


def _processes(need: Need) -> int:
    """Return a process for each core that the Job may use; a container does not see its limit."""
    return max(1, math.ceil(Decimal(quantity.millicores(need.resources.cpu)) / 1000))


def _command(need: Need) -> list[str]:
    return [
        *_program(need),
        *("--state", need.state_file),
        *("--attempts", str(_RETRIES + 1)),
        *("--out", need.path),
    ]


def _program(need: Need) -> list[str]:
    if isinstance(need, WeightsFetch):
        return ["python", "-m", "trainer.weights", "--source", need.source]
    given = {
        "--format": need.format,
        "--column": need.column,
        "--tokenizer": need.tokenizer,
    }
    return [
        *("python", "-m", "trainer.prepare"),
        *("--source", need.source),
        *(word for option, value in given.items() if value for word in (option, value)),
        *("--processes", str(_processes(need))),
    ]


def _container_name(need: Need) -> str:
    return "fetch" if isinstance(need, WeightsFetch) else "prepare"


def _environment(need: Need, platform: Platform) -> list[dict[str, Any]]:
    uid = {"fieldRef": {"fieldPath": f"metadata.labels['{_UID_LABEL}']"}}
    known = platform.teams[need.team].secrets
    if isinstance(need, WeightsFetch):
        secrets = pod.named_variables(need.variables(known))
    else:
        secrets = pod.secret_variables(need.secrets, known)
    return [
        {"name": "HOME", "value": "/tmp"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        # The tokenizers' own threads would be one per core of the node.
        {"name": "RAYON_NUM_THREADS", "value": str(_processes(need))},
        {"name": UID_ENV, "valueFrom": uid},
        *secrets,
    ]


def _container(need: Need, platform: Platform) -> dict[str, Any]:
    amounts = {"cpu": need.resources.cpu, "memory": need.resources.memory}
    return {
        "name": _container_name(need),
        "image": need.image,
        "imagePullPolicy": "IfNotPresent",
        "command": _command(need),
        "workingDir": contract.WORKSPACE,
        "env": _environment(need, platform),
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
        "volumeMounts": [
            {"name": "datasets", "mountPath": contract.DATA_MOUNT},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "securityContext": pod.restricted(),
    }


def _pod_spec(need: Need, platform: Platform) -> dict[str, Any]:
    team = platform.teams[need.team]
    cpu_pool = platform.cpu_pool
    return {
        "restartPolicy": "Never",
        "serviceAccountName": team.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security.pod_security_with_volumes(),
        **({"nodeSelector": {naming.POOL: cpu_pool.name}} if cpu_pool else {}),
        "containers": [_container(need, platform)],
        "volumes": [
            {"name": "datasets", "persistentVolumeClaim": {"claimName": team.datasets_claim}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def job(need: Need, platform: Platform) -> Manifest:
    """Return the Job. It is kept when it has ended: its removal would be drift."""
    if isinstance(need, WeightsFetch):
        labels = naming.object_labels(naming.WEIGHTS_COMPONENT, need.team)
    else:
        labels = naming.object_labels(naming.DATASET_COMPONENT, need.team)
        labels[naming.DATASET] = need.dataset
    namespace = platform.teams[need.team].namespace
    rules = [
        pod_failure_policy.exit_code_rule(
            "FailJob", contract.EXIT_BAD_CONFIG, _container_name(need)
        ),
        pod_failure_policy.disruption_rule("Ignore"),
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            need.name,
            namespace=namespace,
            labels=labels,
            annotations={naming.REPLACE_UNREADY: "true", naming.SKIP_AWAIT: "true"},
        ),
        "spec": {
            "backoffLimit": _RETRIES,
            "podFailurePolicy": {"rules": rules},
            "template": {
                "metadata": {"labels": dict(labels)},
                "spec": _pod_spec(need, platform),
            },
        },
    }
