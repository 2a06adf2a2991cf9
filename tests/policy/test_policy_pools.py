"""The rule that GPU nodes carry their taints, however they are made."""

from __future__ import annotations

from typing import Any

import pytest

from policies.rules.model import UNKNOWN, Resource
from policies.rules.pools import GPU_POOL_TAINTS
from tests.policy.policy_examples import paths, violations

GPU = {"key": "dedicated", "value": "gpu-training", "effect": "NoSchedule"}
SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
EKS_GPU = GPU | {"effect": "NO_SCHEDULE"}
EKS_SPOT = SPOT | {"effect": "NO_SCHEDULE"}


def node(taints: Any, *, gpus: Any = "8", capacity: str = "on-demand", **labels: str) -> Resource:
    metadata = {"name": "n", "labels": {"trainyard.dev/capacity": capacity} | labels}
    status = {"capacity": {"cpu": "96", "nvidia.com/gpu": gpus}}
    props = {"metadata": metadata, "spec": {"taints": taints}, "status": status}
    return Resource(type="kubernetes:core/v1:Node", props=props)


def node_group(**props: Any) -> Resource:
    return Resource(type="aws:eks/nodeGroup:NodeGroup", props=props)


def karpenter(taints: Any, *capacity: str, **labels: str) -> Resource:
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": list(capacity)},
        {
            "key": "node.kubernetes.io/instance-type",
            "operator": "In",
            "values": ["p4d.24xlarge"] if not labels else ["m7i.large"],
        },
    ]
    template = {
        "metadata": {"labels": labels},
        "spec": {"taints": taints, "requirements": requirements},
    }
    return Resource(
        type="kubernetes:karpenter.sh/v1:NodePool", props={"spec": {"template": template}}
    )


@pytest.mark.parametrize(
    "resource",
    [
        node([GPU]),
        node([GPU, SPOT], capacity="spot"),
        node([], gpus="0"),
        node(UNKNOWN),
        node_group(instanceTypes=["p4d.24xlarge"], taints=[EKS_GPU]),
        node_group(instanceTypes=["p4d.24xlarge"], capacityType="SPOT", taints=[EKS_GPU, EKS_SPOT]),
        node_group(instanceTypes=["m7i.2xlarge"], amiType="AL2023_x86_64_STANDARD"),
        karpenter([GPU], "on-demand"),
        karpenter([GPU, SPOT], "spot", "on-demand"),
        karpenter([], "spot", team="research"),
        Resource(type="kubernetes:core/v1:Pod", props={}),
    ],
)
def test_tainted_gpu_nodes_and_untainted_cpu_nodes_pass(resource: Resource) -> None:
    assert violations(GPU_POOL_TAINTS, resource) == []


@pytest.mark.parametrize(
    ("resource", "where"),
    [
        (node([]), ["spec.taints"]),
        (node(None), ["spec.taints"]),
        (node([GPU | {"effect": "PreferNoSchedule"}]), ["spec.taints"]),
        (node([GPU], capacity="spot"), ["spec.taints"]),
        (node([], capacity="spot"), ["spec.taints", "spec.taints"]),
        (node([], gpus="0", accelerator="nvidia"), ["spec.taints"]),
        (node_group(instanceTypes=["g6.xlarge"]), ["taints"]),
        (node_group(amiType="AL2023_x86_64_NVIDIA"), ["taints"]),
        (node_group(labels={"workload-type": "gpu-training"}), ["taints"]),
        (
            node_group(instanceTypes=["p5.48xlarge"], capacityType="SPOT", taints=[EKS_GPU]),
            ["taints"],
        ),
        (karpenter([], "on-demand"), ["spec.template.spec.taints"]),
        (karpenter([GPU], "spot", "on-demand"), ["spec.template.spec.taints"]),
    ],
)
def test_a_gpu_node_without_its_taints_is_refused(resource: Resource, where: list[str]) -> None:
    assert paths(violations(GPU_POOL_TAINTS, resource)) == where


def test_the_message_names_the_missing_taint() -> None:
    found = violations(GPU_POOL_TAINTS, node([GPU], capacity="spot"))
    assert str(found[0]) == (
        'spec.taints: got [{"key": "dedicated", "value": "gpu-training", "effect": "NoSchedule"}];'
        " allowed spot=true:NoSchedule among the taints of a spot GPU node; add it, or pods that"
        " need no GPU fill the node"
    )


def test_the_taints_are_the_configured_ones() -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    assert violations(GPU_POOL_TAINTS, node(taints), gpuTaint="gpu=:NoSchedule") == []
