"""The rule that pods, GPUs, tolerations and queue agree."""

from __future__ import annotations

from typing import Any

import pytest

from policies.rules.model import UNKNOWN
from policies.rules.placement import GPU_PLACEMENT
from tests.policy.policy_examples import (
    GPU_TOLERATION,
    IMAGE,
    QUEUE,
    WORKLOADS,
    cpu_pod,
    gpu_container,
    gpu_pod,
    job,
    kubernetes,
    paths,
    train_job,
    violations,
)
from tests.unit.snapshots import Text

EVERYTHING = {"operator": "Exists"}


def test_a_queued_gpu_job_with_toleration_and_node_selector_passes() -> None:
    assert violations(GPU_PLACEMENT, job(gpu_pod())) == []


def test_a_cpu_job_without_toleration_passes() -> None:
    assert violations(GPU_PLACEMENT, job(cpu_pod(), labels={})) == []


@pytest.mark.parametrize("kind", sorted(set(WORKLOADS) - {"apps/v1:DaemonSet", "batch/v1:CronJob"}))
def test_a_gpu_pod_of_any_kind_requires_a_queue(kind: str) -> None:
    spec = WORKLOADS[kind](gpu_pod())
    assert violations(GPU_PLACEMENT, kubernetes(kind, spec, QUEUE)) == []
    assert paths(violations(GPU_PLACEMENT, kubernetes(kind, spec))) == ["metadata.labels"]


def test_the_jobs_of_a_cron_job_carry_the_queue_label_not_the_cron_job() -> None:
    spec = WORKLOADS["batch/v1:CronJob"](gpu_pod())
    found = violations(GPU_PLACEMENT, kubernetes("batch/v1:CronJob", spec, QUEUE))
    assert paths(found) == ["spec.jobTemplate.metadata.labels"]
    spec["jobTemplate"]["metadata"] = {"labels": QUEUE}
    assert violations(GPU_PLACEMENT, kubernetes("batch/v1:CronJob", spec)) == []


def test_a_gpu_pod_without_toleration_is_rejected(text: Text) -> None:
    found = violations(GPU_PLACEMENT, job(gpu_pod(tolerations=[])))
    text([str(violation) for violation in found])


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "dedicated", "operator": "Exists"},
        {"key": "dedicated", "value": "gpu-training"},
        GPU_TOLERATION,
        EVERYTHING,
    ],
)
def test_tolerations_are_matched_like_the_scheduler_does(toleration: dict[str, str]) -> None:
    assert violations(GPU_PLACEMENT, job(gpu_pod(tolerations=[toleration]))) == []


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "dedicated", "operator": "Equal", "value": "other"},
        {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"},
        {"key": "gpu", "operator": "Exists"},
    ],
)
def test_a_toleration_of_something_else_does_not_count(toleration: dict[str, str]) -> None:
    assert paths(violations(GPU_PLACEMENT, job(gpu_pod(tolerations=[toleration])))) == [
        "spec.template.spec.tolerations"
    ]


@pytest.mark.parametrize("toleration", [GPU_TOLERATION, EVERYTHING])
def test_a_pod_without_gpus_must_not_tolerate_the_gpu_taint(toleration: dict[str, str]) -> None:
    pod = cpu_pod(tolerations=[{"key": "other", "operator": "Exists"}, toleration])
    assert paths(violations(GPU_PLACEMENT, job(pod))) == ["spec.template.spec.tolerations[1]"]


def test_a_daemon_set_may_tolerate_everything_without_gpus() -> None:
    spec = WORKLOADS["apps/v1:DaemonSet"](cpu_pod(tolerations=[EVERYTHING]))
    assert violations(GPU_PLACEMENT, kubernetes("apps/v1:DaemonSet", spec)) == []


def affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


GPU_NODES = {"key": "workload-type", "operator": "In", "values": ["gpu-training"]}
ZONE = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["sandbox-1a"]}


@pytest.mark.parametrize("terms", [[[GPU_NODES]], [[ZONE, GPU_NODES], [GPU_NODES]]])
def test_required_affinity_can_replace_the_node_selector(terms: list[Any]) -> None:
    pod = gpu_pod(nodeSelector={}, affinity=affinity(*terms))
    assert violations(GPU_PLACEMENT, job(pod)) == []


@pytest.mark.parametrize(
    "terms",
    [
        [],
        [[ZONE]],
        [[GPU_NODES], [ZONE]],
        [[GPU_NODES | {"operator": "NotIn"}]],
        [[GPU_NODES | {"values": ["gpu-training", "cpu"]}]],
    ],
)
def test_affinity_that_allows_other_nodes_is_rejected(terms: list[Any]) -> None:
    pod = gpu_pod(nodeSelector={}, affinity=affinity(*terms))
    assert paths(violations(GPU_PLACEMENT, job(pod))) == ["spec.template.spec.nodeSelector"]


@pytest.mark.parametrize(
    ("resources", "got"),
    [
        (
            {"limits": {"nvidia.com/gpu": 8}, "requests": {"nvidia.com/gpu": 4}},
            "nvidia.com/gpu limit 8, request 4",
        ),
        ({"requests": {"nvidia.com/gpu": "8"}}, 'nvidia.com/gpu limit null, request "8"'),
    ],
)
def test_gpu_requests_must_equal_limits(resources: dict[str, Any], got: str) -> None:
    pod = gpu_pod(containers=[gpu_container(resources=resources)])
    found = violations(GPU_PLACEMENT, job(pod))
    assert [(v.path, v.got) for v in found] == [("spec.template.spec.containers[0].resources", got)]


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {"nvidia.com/gpu": 8}},
        {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": 8}},
        {"limits": {"nvidia.com/mig-1g.10gb": 1}},
    ],
)
def test_gpu_limits_alone_or_equal_requests_pass(resources: dict[str, Any]) -> None:
    pod = gpu_pod(containers=[gpu_container(resources=resources)])
    assert violations(GPU_PLACEMENT, job(pod)) == []


def test_gpus_of_an_init_container_count_too() -> None:
    pod = cpu_pod(initContainers=[gpu_container()])
    assert paths(violations(GPU_PLACEMENT, job(pod, labels={}))) == [
        "spec.template.spec.tolerations",
        "spec.template.spec.nodeSelector",
        "metadata.labels",
    ]


def test_a_gpu_pod_must_not_choose_its_node() -> None:
    found = violations(GPU_PLACEMENT, job(gpu_pod(nodeName="spot-0")))
    assert paths(found) == ["spec.template.spec.nodeName"]


def test_the_taint_is_the_configured_one() -> None:
    pod = gpu_pod(tolerations=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    assert violations(GPU_PLACEMENT, job(pod), gpuTaint="gpu=yes:NoSchedule") == []


def test_a_train_job_requires_a_queue_and_inherits_placement() -> None:
    trainer = {"image": IMAGE, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    assert violations(GPU_PLACEMENT, train_job(trainer)) == []
    assert paths(violations(GPU_PLACEMENT, train_job(trainer, {"a": "b"}))) == ["metadata.labels"]


@pytest.mark.parametrize(
    ("trainer", "queued"),
    [
        ({}, True),
        ({"numNodes": 2}, True),
        ({"resourcesPerNode": {"limits": {"cpu": 1}}}, False),
    ],
)
def test_a_train_job_with_gpus_of_its_runtime_requires_a_queue(
    trainer: dict[str, Any], queued: bool
) -> None:
    found = violations(GPU_PLACEMENT, train_job(trainer, {"a": "b"}))
    assert paths(found) == (["metadata.labels"] if queued else [])


def test_overrides_of_a_train_job_do_not_set_gpus() -> None:
    on_cpu = train_job({"resourcesPerNode": {"limits": {"cpu": 1}}}, {"a": "b"})
    on_cpu.props["spec"]["podTemplateOverrides"] = [{"spec": {"containers": [{"name": "node"}]}}]
    assert violations(GPU_PLACEMENT, on_cpu) == []


def test_a_pod_without_gpus_may_share_nodes_with_its_gang() -> None:
    launcher = cpu_pod(tolerations=[GPU_TOLERATION])
    replicas = {
        "Launcher": {"template": {"spec": launcher}},
        "Worker": {"template": {"spec": gpu_pod()}},
    }
    gang = kubernetes("kubeflow.org/v2beta1:MPIJob", {"mpiReplicaSpecs": replicas}, QUEUE)
    assert violations(GPU_PLACEMENT, gang) == []
    del replicas["Worker"]
    assert len(violations(GPU_PLACEMENT, gang)) == 1


def test_a_missing_queue_label_is_reported_once_per_gang() -> None:
    replicas = {name: {"template": {"spec": gpu_pod()}} for name in ("Master", "Worker")}
    gang = kubernetes("kubeflow.org/v1:PyTorchJob", {"pytorchReplicaSpecs": replicas})
    assert paths(violations(GPU_PLACEMENT, gang)) == ["metadata.labels"]


@pytest.mark.parametrize(
    "pod",
    [
        gpu_pod(tolerations=UNKNOWN),
        gpu_pod(tolerations=[{"key": UNKNOWN, "operator": "Exists"}]),
        gpu_pod(nodeSelector=UNKNOWN),
        gpu_pod(nodeName=UNKNOWN),
    ],
)
def test_unknown_values_are_checked_on_update(pod: dict[str, Any]) -> None:
    assert violations(GPU_PLACEMENT, job(pod)) == []
    assert violations(GPU_PLACEMENT, job(pod, labels=UNKNOWN)) == []
