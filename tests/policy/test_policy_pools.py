"""The rule that GPU nodes carry their taints, for every kind of node pool."""

from __future__ import annotations

from typing import Any

import pytest

from policies.rules.gpu_pools import GPU_POOL_TAINTS, SPOT_INSTANCE_TYPES
from policies.rules.model import UNKNOWN, Resource
from tests.policy.policy_examples import paths, violations
from tests.unit.snapshots import Text

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


def requiring(taints: Any, *requirements: tuple[str, str, Any]) -> Resource:
    """A NodePool without labels; requirements as key, operator, values."""
    given = [{"key": key, "operator": how, "values": values} for key, how, values in requirements]
    spec = {"taints": taints, "requirements": given}
    return Resource(
        type="kubernetes:karpenter.sh/v1:NodePool", props={"spec": {"template": {"spec": spec}}}
    )


AWS = "karpenter.k8s.aws/instance"
BOUGHT = "karpenter.sh/capacity-type"
ON_DEMAND = (BOUGHT, "In", ["on-demand"])
P5 = (f"{AWS}-family", "In", ["p5", "m7i"])


@pytest.mark.parametrize(
    "requirement",
    [
        P5,
        (f"{AWS}-category", "In", ["m", "g"]),
        (f"{AWS}-gpu-count", "Gt", ["0"]),
        (f"{AWS}-gpu-name", "Exists", None),
        (f"{AWS}-gpu-manufacturer", "In", ["nvidia"]),
        ("node.kubernetes.io/instance-type", "In", ["gr6.4xlarge"]),
    ],
)
def test_gpu_node_pools_are_recognized_by_their_requirements(
    requirement: tuple[str, str, Any],
) -> None:
    assert violations(GPU_POOL_TAINTS, requiring([GPU], requirement, ON_DEMAND)) == []
    assert len(violations(GPU_POOL_TAINTS, requiring([], requirement, ON_DEMAND))) == 1


@pytest.mark.parametrize(
    "requirements",
    [
        [(f"{AWS}-family", "In", ["m7i"]), (f"{AWS}-category", "In", ["m", "g"])],
        [(f"{AWS}-category", "In", ["c", "m", "r"])],
        [(f"{AWS}-category", "NotIn", ["p", "g"])],
        [(f"{AWS}-gpu-count", "DoesNotExist", None)],
        [(f"{AWS}-gpu-count", "Lt", ["1"])],
        [("node.kubernetes.io/instance-type", "In", ["m7i.large"]), P5],
        [],
    ],
)
def test_a_node_pool_without_gpus_needs_no_taint(requirements: Any) -> None:
    assert violations(GPU_POOL_TAINTS, requiring([], *requirements)) == []


@pytest.mark.parametrize(
    "bought",
    [
        [],
        [(BOUGHT, "Exists", None)],
        [(BOUGHT, "NotIn", ["on-demand"])],
        [(BOUGHT, "In", ["reserved", "spot"])],
    ],
)
def test_a_node_pool_that_does_not_exclude_spot_uses_it(bought: Any) -> None:
    assert violations(GPU_POOL_TAINTS, requiring([GPU, SPOT], P5, *bought)) == []
    assert len(violations(GPU_POOL_TAINTS, requiring([GPU], P5, *bought))) == 1


@pytest.mark.parametrize(
    "bought", [ON_DEMAND, (BOUGHT, "NotIn", ["spot"]), (BOUGHT, "In", UNKNOWN)]
)
def test_a_node_pool_without_spot_or_unknown_passes(bought: Any) -> None:
    assert violations(GPU_POOL_TAINTS, requiring([GPU], P5, bought)) == []


def test_unknown_requirements_are_checked_on_update() -> None:
    labelled = karpenter([GPU], "on-demand", accelerator="nvidia")
    labelled.props["spec"]["template"]["spec"]["requirements"] = UNKNOWN
    assert violations(GPU_POOL_TAINTS, labelled) == []


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
def test_a_gpu_node_without_its_taints_is_rejected(resource: Resource, where: list[str]) -> None:
    assert paths(violations(GPU_POOL_TAINTS, resource)) == where


def test_the_message_names_the_missing_taint(text: Text) -> None:
    found = violations(GPU_POOL_TAINTS, node([GPU], capacity="spot"))
    text(str(found[0]))


def test_the_taints_are_the_configured_ones() -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    assert violations(GPU_POOL_TAINTS, node(taints), gpuTaint="gpu=:NoSchedule") == []


ONE, TWO = ["p4d.24xlarge"], ["p4d.24xlarge", "p4de.24xlarge"]
TYPE = "node.kubernetes.io/instance-type"


@pytest.mark.parametrize(
    "resource",
    [
        node_group(instanceTypes=TWO, capacityType="SPOT"),
        node_group(instanceTypes=ONE, capacityType="ON_DEMAND"),
        node_group(instanceTypes=UNKNOWN, capacityType="SPOT", amiType="AL2023_x86_64_NVIDIA"),
        node_group(instanceTypes=[*ONE, UNKNOWN], capacityType="SPOT"),
        node_group(instanceTypes=["m7i.2xlarge"], capacityType="SPOT"),
        requiring([], (TYPE, "In", TWO)),
        requiring([], (TYPE, "In", ONE), ON_DEMAND),
        requiring([], P5),
        node([], capacity="spot"),
    ],
)
def test_spot_pools_with_several_types_and_other_pools_pass(resource: Resource) -> None:
    assert violations(SPOT_INSTANCE_TYPES, resource) == []


@pytest.mark.parametrize(
    ("resource", "where"),
    [
        (node_group(instanceTypes=ONE * 2, capacityType="SPOT"), "instanceTypes"),
        (requiring([], (TYPE, "In", ONE)), "spec.template.spec.requirements"),
    ],
    ids=["EKS", "Karpenter"],
)
def test_spot_pool_with_one_type_is_rejected(resource: Resource, where: str, text: Text) -> None:
    found = violations(SPOT_INSTANCE_TYPES, resource)
    assert paths(found) == [where]
    text(str(found[0]))
    assert violations(SPOT_INSTANCE_TYPES, resource, atLeast=1) == []
