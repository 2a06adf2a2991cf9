"""Resources that obey every rule, for tests to break in one place each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from policies.rules.model import Resource, ResourceRule, StackRule, Violation, defaults

DIGEST = "sha256:" + "0123456789abcdef" * 4
IMAGE = f"sandbox.trainyard.dev/trainer@{DIGEST}"
GPU_TOLERATION = {
    "key": "dedicated",
    "operator": "Equal",
    "value": "gpu-training",
    "effect": "NoSchedule",
}
SPOT_TOLERATION = {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
QUEUE = {"kueue.x-k8s.io/queue-name": "research"}

_GPU_POD: dict[str, Any] = {
    "nodeSelector": {"workload-type": "gpu-training"},
    "tolerations": [GPU_TOLERATION, SPOT_TOLERATION],
    "terminationGracePeriodSeconds": 50,
    "volumes": [{"name": "run", "configMap": {"name": "demo-v1-0a1b2c3d"}}],
    "containers": [
        {
            "name": "trainer",
            "image": IMAGE,
            "command": ["python3", "-m", "trainyard.launch"],
            "env": [{"name": "TRAINYARD_NOTICE_SECONDS", "value": "50"}],
            "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 1}},
        }
    ],
}


def gpu_pod(**changes: Any) -> dict[str, Any]:
    """A pod spec that may run on spot GPU nodes; `changes` replace fields of it."""
    return copy.deepcopy(_GPU_POD) | changes


def gpu_container(**changes: Any) -> dict[str, Any]:
    """The container of `gpu_pod`; `changes` replace fields of it."""
    container: dict[str, Any] = copy.deepcopy(_GPU_POD["containers"][0])
    return container | changes


def cpu_pod(**changes: Any) -> dict[str, Any]:
    """A pod spec without GPUs."""
    return {"containers": [{"name": "main", "image": IMAGE}]} | changes


def kubernetes(kind: str, spec: Any, labels: Any = None, name: str = "demo") -> Resource:
    """An object in the namespace of the team `research`; `kind` is GROUP/VERSION:KIND."""
    metadata = {"name": name, "namespace": "team-research", "labels": labels or {}}
    return Resource(
        type=f"kubernetes:{kind}", props={"metadata": metadata, "spec": spec}, urn=f"urn:{name}"
    )


def _template(pod: Any) -> dict[str, Any]:
    return {"template": {"metadata": {"labels": {"app": "demo"}}, "spec": pod}}


def _replicas(field: str) -> Callable[[Any], Any]:
    return lambda pod: {field: {"Worker": {"replicas": 2, **_template(pod)}}}


def _jobset(pod: Any) -> Any:
    return {"replicatedJobs": [{"name": "worker", "template": {"spec": _template(pod)}}]}


WORKLOADS: dict[str, Callable[[Any], Any]] = {
    "core/v1:Pod": lambda pod: pod,
    "batch/v1:Job": _template,
    "batch/v1:CronJob": lambda pod: {"jobTemplate": {"spec": _template(pod)}},
    "apps/v1:Deployment": _template,
    "apps/v1:StatefulSet": _template,
    "apps/v1:DaemonSet": _template,
    "jobset.x-k8s.io/v1alpha2:JobSet": _jobset,
    "kubeflow.org/v1:PyTorchJob": _replicas("pytorchReplicaSpecs"),
    "kubeflow.org/v2beta1:MPIJob": _replicas("mpiReplicaSpecs"),
    "example.com/v1:Unheard": lambda pod: {"deep": [{"er": _template(pod)}]},
}
"""Per kind: the spec around a pod."""


def job(pod: Any, labels: Any = None) -> Resource:
    """A Job around a pod, queued by default."""
    return kubernetes("batch/v1:Job", _template(pod), QUEUE if labels is None else labels)


def train_job(trainer: Any, labels: Any = None) -> Resource:
    """A Kubeflow TrainJob, queued by default."""
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    return kubernetes("trainer.kubeflow.org/v1alpha1:TrainJob", spec, labels or QUEUE)


def violations(rule: ResourceRule, resource: Resource, **config: Any) -> list[Violation]:
    """What the rule finds wrong with one resource; `config` replaces defaults."""
    return list(rule.check(resource, defaults(rule.schema) | config))


def stack_violations(
    rule: StackRule, resources: Iterable[Resource], **config: Any
) -> list[Violation]:
    """What the rule finds wrong with a stack; `config` replaces defaults."""
    return list(rule.check(list(resources), defaults(rule.schema) | config))


def paths(found: Iterable[Violation]) -> list[str]:
    """Where the mistakes are."""
    return [violation.path for violation in found]
