"""The rule that production stays off spot unless its run opts in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from policies.rules.model import UNKNOWN, Resource
from policies.rules.production_spot import SPOT_FOR_PRODUCTION
from tests.policy.policy_examples import (
    GPU_TOLERATION,
    SPOT_TOLERATION,
    gpu_pod,
    kubernetes,
    stack_violations,
)
from tests.policy.policy_pools import cluster_queue, flavor, kueue, namespace
from tests.unit.snapshots import Text

QUEUES = [
    kueue("LocalQueue", "research", {"clusterQueue": "team-research"}, "team-research"),
    cluster_queue("research", "spot", "ondemand"),
    flavor("spot", [GPU_TOLERATION, SPOT_TOLERATION]),
    flavor("ondemand", [GPU_TOLERATION]),
]
"""The queue of the examples' namespace, with both kinds of capacity behind it."""


def affinity(key: str, operator: str, *values: Any) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def run(pod: dict[str, Any], tier: str = "production") -> Resource:
    labels = {"kueue.x-k8s.io/queue-name": "research", "trainyard.dev/tier": tier}
    return kubernetes("batch/v1:Job", {"template": {"spec": pod}}, labels)


def record(*capacity: str) -> Resource:
    metadata = {"name": "demo-v1-0a1b2c3d", "namespace": "team-research"}
    data = {"run.json": json.dumps({"capacity_types": capacity})}
    return Resource(type="kubernetes:core/v1:ConfigMap", props={"metadata": metadata, "data": data})


ON_POOL = affinity("trainyard.dev/pool", "In", "ondemand")
UNTOLERANT = [GPU_TOLERATION]
LATER = {"run.json": UNKNOWN}
BY_EKS = "eks.amazonaws.com/capacityType"


@pytest.mark.parametrize(
    "resources",
    [
        [run(gpu_pod()), record("on-demand", "spot"), *QUEUES],
        [run(gpu_pod(), tier="research"), record("spot"), *QUEUES],
        [run(gpu_pod(affinity=ON_POOL)), record("on-demand"), *QUEUES],
        [run(gpu_pod(affinity=affinity("trainyard.dev/pool", "NotIn", "spot"))), *QUEUES],
        [run(gpu_pod(affinity=affinity("trainyard.dev/pool", "In", UNKNOWN))), *QUEUES],
        [run(gpu_pod(affinity=UNKNOWN)), *QUEUES],
        [run(gpu_pod(nodeSelector={"trainyard.dev/capacity": "on-demand"})), *QUEUES],
        [run(gpu_pod(nodeSelector={"trainyard.dev/pool": "ondemand"})), *QUEUES],
        [run(gpu_pod(nodeSelector={"karpenter.sh/capacity-type": "on-demand"})), *QUEUES],
        [run(gpu_pod(affinity=affinity(BY_EKS, "NotIn", "SPOT"))), *QUEUES],
        [run(gpu_pod(tolerations=UNTOLERANT))],
        [run(gpu_pod(volumes=[{"configMap": {"name": UNKNOWN}}])), *QUEUES],
        [run(gpu_pod()), replace(record(), props={**record().props, "data": LATER}), *QUEUES],
    ],
)
def test_a_production_run_off_spot_or_opted_in_passes(resources: list[Resource]) -> None:
    assert stack_violations(SPOT_FOR_PRODUCTION, resources) == []


@pytest.mark.parametrize(
    "resources",
    [
        [run(gpu_pod()), record("on-demand")],
        [run(gpu_pod())],
        [run(gpu_pod(tolerations=UNTOLERANT)), record("on-demand"), *QUEUES],
        [
            run(gpu_pod(affinity=affinity("trainyard.dev/pool", "In", "spot", "ondemand"))),
            record("on-demand"),
            *QUEUES,
        ],
        [run(gpu_pod(nodeSelector={"trainyard.dev/pool": "spot"})), *QUEUES],
        [run(gpu_pod(nodeSelector={"karpenter.sh/capacity-type": "spot"})), *QUEUES],
        [run(gpu_pod(affinity=affinity(BY_EKS, "In", "SPOT", "ON_DEMAND"))), *QUEUES],
        [run(gpu_pod(affinity=affinity("zone", "In", "a"))), record("on-demand"), *QUEUES],
        [run(gpu_pod(affinity=affinity("zone", "NotIn", "a"))), *QUEUES],
        [run(gpu_pod(affinity=affinity("trainyard.dev/pool", "NotIn", "ondemand"))), *QUEUES],
    ],
)
def test_a_production_run_that_may_use_spot_without_opting_in_is_rejected(
    resources: list[Resource],
    text: Text,
) -> None:
    (found,) = stack_violations(SPOT_FOR_PRODUCTION, resources)
    text(str(found))
    assert found.urn == "urn:demo"


@pytest.mark.parametrize("tier", ["", "research"])
def test_the_tier_of_a_pod_is_that_of_its_namespace(tier: str) -> None:
    resources = [run(gpu_pod(), tier), *QUEUES]
    assert (
        stack_violations(SPOT_FOR_PRODUCTION, [*resources, namespace("team-research", "research")])
        == []
    )
    assert (
        stack_violations(SPOT_FOR_PRODUCTION, [*resources, namespace("team-b", "production")]) == []
    )
    inside = [*resources, namespace("team-research", "production")]
    assert len(stack_violations(SPOT_FOR_PRODUCTION, inside)) == 1
    assert stack_violations(SPOT_FOR_PRODUCTION, [*inside, record("spot")]) == []


RUNTIME = {"spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": gpu_pod()}}}}]}}


def of_runtime(**changes: Any) -> Resource:
    """A production run as a TrainJob, whose pods its runtime describes."""
    labels = {"kueue.x-k8s.io/queue-name": "research", "trainyard.dev/tier": "production"}
    spec = {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2}} | changes
    return kubernetes("trainer.kubeflow.org/v1alpha1:TrainJob", spec, labels)


def runtime(kind: str, name: str = "torch") -> Resource:
    return kubernetes(f"trainer.kubeflow.org/v1alpha1:{kind}", {"template": RUNTIME}, name=name)


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
def test_a_train_job_has_the_pods_of_its_runtime(kind: str) -> None:
    (found,) = stack_violations(SPOT_FOR_PRODUCTION, [of_runtime(), runtime(kind), *QUEUES])
    assert found.urn == "urn:demo"
    assert found.path.startswith("torch: spec.template.spec.replicatedJobs[0].template")
    asked = [of_runtime(), runtime(kind), record("spot"), *QUEUES]
    assert stack_violations(SPOT_FOR_PRODUCTION, asked) == []


def test_a_train_job_whose_pods_cannot_be_determined_passes() -> None:
    away = runtime("TrainingRuntime")
    away = replace(away, props={**away.props, "metadata": {"name": "torch", "namespace": "b"}})
    for job, around in (
        (of_runtime(podTemplateOverrides=[{"spec": {}}]), runtime("TrainingRuntime")),
        (of_runtime(runtimePatches=UNKNOWN), runtime("TrainingRuntime")),
        (of_runtime(), runtime("TrainingRuntime", "jax")),
        (of_runtime(), away),
    ):
        assert stack_violations(SPOT_FOR_PRODUCTION, [job, around, *QUEUES]) == []


@pytest.mark.parametrize("kind", ["apps/v1:DaemonSet", "batch/v1:JobPatch"])
def test_daemon_sets_and_patches_pass(kind: str) -> None:
    labels = {"trainyard.dev/tier": "production"}
    resource = kubernetes(kind, {"template": {"spec": gpu_pod()}}, labels)
    assert stack_violations(SPOT_FOR_PRODUCTION, [resource]) == []


def test_the_tier_that_must_opt_in_is_the_configured_one() -> None:
    resources = [run(gpu_pod(), tier="gold"), *QUEUES]
    assert stack_violations(SPOT_FOR_PRODUCTION, resources) == []
    assert len(stack_violations(SPOT_FOR_PRODUCTION, resources, tier="gold")) == 1
