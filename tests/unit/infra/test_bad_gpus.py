"""Mistakes about GPUs and their network in stack files: each is one exact line."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from infra.config import ConfigError, parse
from tests.golden.example_runs import stack_values
from tests.unit.infra import example_eks

Edit = Callable[[dict[str, Any]], object]

INSTALLED = {"provided": False}


def on_eks(*edits: Edit) -> dict[str, Any]:
    """A sound stack on EKS, spoilt."""
    values = example_eks.stack_values()
    for edit in edits:
        edit(values)
    return values


def existing(*edits: Edit) -> dict[str, Any]:
    """A sound stack on a cluster that is there, spoilt."""
    values = copy.deepcopy(stack_values())
    for edit in edits:
        edit(values)
    return values


def operators(**named: Any) -> Edit:
    """Operators named so, or not at all."""

    def edit(values: dict[str, Any]) -> None:
        values["operators"] |= named
        values["operators"] = {k: v for k, v in values["operators"].items() if v is not None}

    return edit


def pool(index: int, **changes: Any) -> Edit:
    return lambda values: values["nodePools"][index].update(changes)


def sharing(name: str, **how: Any) -> Edit:
    return lambda values: values.update(gpus={"sharing": {name: how}})


def team(index: int, **changes: Any) -> Edit:
    return lambda values: values["teams"][index].update(changes)


GPU_OPERATOR = operators(gpuOperator=INSTALLED)
ALONE = team(1, borrowing={"spot": 0})
"""Production keeps off the spot pool: it is research's own."""
SLICED = sharing("spot", timeSlicing=4)

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "two that offer GPUs": (
        on_eks(operators(devicePlugin=INSTALLED)),
        "operators.devicePlugin: got it beside gpuOperator, which brings its own; allowed either "
        "gpuOperator, or devicePlugin and perhaps dcgmExporter; remove one of them",
    ),
    "two exporters": (
        on_eks(operators(dcgmExporter=INSTALLED)),
        "operators.dcgmExporter: got it beside gpuOperator, which brings its own; allowed either "
        "gpuOperator, or devicePlugin and perhaps dcgmExporter; remove one of them",
    ),
    "an exporter and no plugin": (
        existing(operators(dcgmExporter=INSTALLED)),
        "operators.dcgmExporter: got it without devicePlugin; allowed it with devicePlugin; "
        "gpuOperator brings its own; add devicePlugin, or name gpuOperator instead",
    ),
    "nobody offers the GPUs of EKS": (
        on_eks(operators(gpuOperator=None)),
        "operators.gpuOperator: got nothing; allowed {provided: false} to install it, or "
        "devicePlugin, for EKS' nodes do not offer their GPUs to pods; add it",
    ),
    "nobody offers the adapters of EKS": (
        on_eks(operators(efaDevicePlugin=None)),
        "operators.efaDevicePlugin: got nothing, with network: efa in nodePools[0]; allowed "
        "{provided: false} to install it, for EKS' nodes do not offer their adapters to pods; "
        "add it",
    ),
    "image and operator both install drivers": (
        on_eks(lambda s: s.update(gpus={"driver": "operator"})),
        "gpus.driver: got 'operator' with nodePools[0], whose machine image has NVIDIA's driver; "
        "allowed image on EKS; a second driver would fight the first over the kernel's module; "
        "remove it",
    ),
    "a driver of an operator that is not there": (
        existing(lambda s: s.update(gpus={"driver": "operator"})),
        "gpus.driver: got 'operator' without gpuOperator; allowed it with gpuOperator, which "
        "brings the driver; add operators.gpuOperator, or remove it",
    ),
    "sharing of an unknown pool": (
        existing(GPU_OPERATOR, sharing("spto", timeSlicing=2)),
        "gpus.sharing.spto: got a pool that is not there, or has no GPUs; allowed ondemand, spot; "
        "did you mean spot?",
    ),
    "sharing of a CPU pool": (
        existing(GPU_OPERATOR, sharing("cpu", timeSlicing=2)),
        "gpus.sharing.cpu: got a pool that is not there, or has no GPUs; allowed ondemand, spot; "
        "name a GPU pool",
    ),
    "two ways at once": (
        existing(GPU_OPERATOR, sharing("spot", timeSlicing=2, mps=2), ALONE),
        "gpus.sharing.spot: got mps, timeSlicing; allowed one of mig, timeSlicing and mps; "
        "keep one of them",
    ),
    "no way": (
        existing(GPU_OPERATOR, sharing("spot")),
        "gpus.sharing.spot: got nothing; allowed one of mig, timeSlicing and mps; add one, or "
        "remove the pool",
    ),
    "time-slicing across teams": (
        existing(GPU_OPERATOR, SLICED, team(1, tier="research", guaranteed={})),
        "gpus.sharing.spot.timeSlicing: got a pool of research, production; allowed a pool of one "
        "team, for nothing keeps its users' memory or faults apart; set borrowing: {spot: 0} for "
        "the others, or use mig",
    ),
    "MPS on a pool of production": (
        existing(GPU_OPERATOR, sharing("ondemand", mps=2), team(0, borrowing={"ondemand": 0})),
        "gpus.sharing.ondemand.mps: got a pool that production may use: production; allowed pools "
        "of research teams, for production trains on whole GPUs; set borrowing: {ondemand: 0} for "
        "them, or use mig",
    ),
    "time-slicing by nobody": (
        existing(SLICED, ALONE),
        "gpus.sharing.spot.timeSlicing: got it without gpuOperator or devicePlugin; allowed it "
        "with one of them, whose device plugin does it; add one of them to operators",
    ),
    "MIG by the plain plugin": (
        existing(operators(devicePlugin=INSTALLED), sharing("spot", mig="1g.5gb")),
        "gpus.sharing.spot.mig: got it without gpuOperator; allowed it with gpuOperator, which "
        "prepares the nodes for it; add operators.gpuOperator, or use timeSlicing",
    ),
    "a profile of other GPUs": (
        existing(GPU_OPERATOR, sharing("spot", mig="1g.6gb")),
        "gpus.sharing.spot.mig: got '1g.6gb' on a100; allowed 1g.5gb, 1g.10gb, 2g.10gb, 3g.20gb, "
        "4g.20gb, 7g.40gb; did you mean 1g.5gb?",
    ),
    "MIG on GPUs that have none": (
        existing(
            GPU_OPERATOR,
            pool(1, instanceTypes=["g6.xlarge"], network="tcp"),
            sharing("spot", mig="1g.5gb"),
        ),
        "gpus.sharing.spot.mig: got '1g.5gb' on l4; allowed no profile that all of the pool's GPUs "
        "have; remove it",
    ),
    "shares on nodes of Karpenter": (
        on_eks(sharing("spot", mig="1g.5gb"), pool(1, instanceTypes=["p4d.24xlarge"])),
        "gpus.sharing.spot: got a pool whose nodes are karpenter; allowed pools whose nodes are "
        "managed or existing, for Karpenter counts whole GPUs and would launch a node for every "
        "few shares; set nodes: managed, or remove it",
    ),
    "one share": (
        existing(GPU_OPERATOR, sharing("spot", timeSlicing=1), ALONE),
        "gpus.sharing.spot.timeSlicing: got 1; allowed at least 2; change it",
    ),
    "RoCE on EC2": (
        on_eks(pool(1, network="roce")),
        "nodePools[1].network: got 'roce' on nodes that are karpenter; allowed roce on nodes that "
        "are existing, for EC2 has EFA and no RoCE; set network: efa or tcp",
    ),
    "RoCE without its adapters": (
        existing(pool(0, network="roce")),
        "nodePools[0].fabric.rdmaResource: got nothing; allowed with network: roce the resource by "
        "which pods get adapters, such as rdma/hca; add it",
    ),
    "an adapter of another kind": (
        existing(pool(0, network="roce", fabric={"rdmaResource": "nvidia.com/hostdev"})),
        "nodePools[0].fabric.rdmaResource: got 'nvidia.com/hostdev'; allowed a resource such as "
        "rdma/hca, which the cluster's RDMA device plugin offers; correct it",
    ),
    "facts of nodes that the stack makes": (
        on_eks(pool(1, fabric={"mtu": 1500})),
        "nodePools[1].fabric: got facts of nodes that are karpenter; allowed it on nodes that are "
        "existing; that of others is known; remove it",
    ),
    "adapters without RoCE": (
        existing(pool(1, fabric={"adapters": ["mlx5_0"]})),
        "nodePools[1].fabric.adapters: got it with network: efa; allowed it with network: roce; "
        "remove it, or set network: roce",
    ),
    "settings of the network by a secret": (
        existing(team(0, secrets=[{"name": "mine", "env": ["WANDB_API_KEY", "NCCL_ALGO"]}])),
        "teams[0].secrets[0].env[1]: got 'NCCL_ALGO'; allowed variables of your own, for those of "
        "the network follow from the pool; remove it, and state what is known of the network in "
        "the pool's fabric",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_one_line(name: str) -> None:
    values, line = BAD[name]
    with pytest.raises(ConfigError) as caught:
        parse(values)
    assert caught.value.lines == (line,)


GOOD: dict[str, dict[str, Any]] = {
    "GPU operator and EFA plugin on EKS": on_eks(),
    "the minimal plugin with its exporter": on_eks(
        operators(gpuOperator=None, devicePlugin=INSTALLED, dcgmExporter=INSTALLED)
    ),
    "the operator's driver on nodes that have none": existing(
        GPU_OPERATOR, lambda s: s.update(gpus={"driver": "operator"})
    ),
    "time-slicing for one research team": existing(GPU_OPERATOR, SLICED, ALONE),
    "MIG for everybody": existing(GPU_OPERATOR, sharing("spot", mig="1g.5gb")),
    "slices of simulated nodes, which nobody prepares": existing(
        pool(1, nodes="kwok"), SLICED, ALONE
    ),
    "RoCE with its adapters": existing(
        pool(0, network="roce", fabric={"rdmaResource": "rdma/hca", "mtu": 9000})
    ),
    "known facts of a plain network": existing(
        pool(0, network="tcp", fabric={"interface": "eth0", "mtu": 8950})
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_their_sound_twins_pass(name: str) -> None:
    parse(GOOD[name])
