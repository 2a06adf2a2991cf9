"""Invalid GPUs and GPU networks in stack files: each is one issue."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from infra.config import parse
from tests.golden.example_runs import stack_values
from tests.unit.infra import example_eks
from tests.unit.infra.config_issues import check_issues

Edit = Callable[[dict[str, Any]], object]

INSTALLED = {"provided": False}


def on_eks(*edits: Edit) -> dict[str, Any]:
    """A valid stack on EKS with edits."""
    values = example_eks.stack_values()
    for edit in edits:
        edit(values)
    return values


def existing(*edits: Edit) -> dict[str, Any]:
    """A valid stack on an existing cluster with edits."""
    values = copy.deepcopy(stack_values())
    for edit in edits:
        edit(values)
    return values


def operators(**named: Any) -> Edit:
    """Replace operators; None removes one."""

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
"""Exclude production from the spot pool, so that only research uses it."""
SLICED = sharing("spot", timeSlicing=4)

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "two that offer GPUs": (
        on_eks(operators(devicePlugin=INSTALLED)),
        "operators.devicePlugin: conflicting-operators",
    ),
    "two exporters": (
        on_eks(operators(dcgmExporter=INSTALLED)),
        "operators.dcgmExporter: conflicting-operators",
    ),
    "an exporter and no plugin": (
        existing(operators(dcgmExporter=INSTALLED)),
        "operators.dcgmExporter: operator-required",
    ),
    "nobody offers the GPUs of EKS": (
        on_eks(operators(gpuOperator=None)),
        "operators.gpuOperator: gpu-plugin-missing",
    ),
    "nobody offers the adapters of EKS": (
        on_eks(operators(efaDevicePlugin=None)),
        "operators.efaDevicePlugin: efa-plugin-missing",
    ),
    "image and operator both install drivers": (
        on_eks(lambda s: s.update(gpus={"driver": "operator"})),
        "gpus.driver: driver-conflict",
    ),
    "a driver of an operator that is not there": (
        existing(lambda s: s.update(gpus={"driver": "operator"})),
        "gpus.driver: operator-required",
    ),
    "sharing of an unknown pool": (
        existing(GPU_OPERATOR, sharing("spto", timeSlicing=2)),
        "gpus.sharing.spto: unknown-name",
    ),
    "sharing of a CPU pool": (
        existing(GPU_OPERATOR, sharing("cpu", timeSlicing=2)),
        "gpus.sharing.cpu: unknown-name",
    ),
    "two ways at once": (
        existing(GPU_OPERATOR, sharing("spot", timeSlicing=2, mps=2), ALONE),
        "gpus.sharing.spot: sharing-mode",
    ),
    "no way": (
        existing(GPU_OPERATOR, sharing("spot")),
        "gpus.sharing.spot: sharing-mode",
    ),
    "time-slicing across teams": (
        existing(GPU_OPERATOR, SLICED, team(1, tier="research", guaranteed={})),
        "gpus.sharing.spot.timeSlicing: sharing-across-teams",
    ),
    "MPS on a pool of production": (
        existing(GPU_OPERATOR, sharing("ondemand", mps=2), team(0, borrowing={"ondemand": 0})),
        "gpus.sharing.ondemand.mps: sharing-with-production",
    ),
    "time-slicing by nobody": (
        existing(SLICED, ALONE),
        "gpus.sharing.spot.timeSlicing: operator-required",
    ),
    "MIG by the plain plugin": (
        existing(operators(devicePlugin=INSTALLED), sharing("spot", mig="1g.5gb")),
        "gpus.sharing.spot.mig: operator-required",
    ),
    "a profile of other GPUs": (
        existing(GPU_OPERATOR, sharing("spot", mig="1g.6gb")),
        "gpus.sharing.spot.mig: mig-profile",
    ),
    "MIG on GPUs that have none": (
        existing(
            GPU_OPERATOR,
            pool(1, instanceTypes=["g6.xlarge"], network="tcp"),
            sharing("spot", mig="1g.5gb"),
        ),
        "gpus.sharing.spot.mig: mig-profile",
    ),
    "shares on nodes of Karpenter": (
        on_eks(sharing("spot", mig="1g.5gb"), pool(1, instanceTypes=["p4d.24xlarge"])),
        "gpus.sharing.spot: sharing-on-karpenter",
    ),
    "one share": (
        existing(GPU_OPERATOR, sharing("spot", timeSlicing=1), ALONE),
        "gpus.sharing.spot.timeSlicing: out-of-range",
    ),
    "RoCE on EC2": (
        on_eks(pool(1, network="roce")),
        "nodePools[1].network: roce-nodes",
    ),
    "RoCE without its adapters": (
        existing(pool(0, network="roce")),
        "nodePools[0].fabric.rdmaResource: missing",
    ),
    "an adapter of another kind": (
        existing(pool(0, network="roce", fabric={"rdmaResource": "nvidia.com/hostdev"})),
        "nodePools[0].fabric.rdmaResource: rdma-resource",
    ),
    "facts of nodes that the stack makes": (
        on_eks(pool(1, fabric={"mtu": 1500})),
        "nodePools[1].fabric: fabric-nodes",
    ),
    "adapters without RoCE": (
        existing(pool(1, fabric={"adapters": ["mlx5_0"]})),
        "nodePools[1].fabric.adapters: fabric-network",
    ),
    "settings of the network by a secret": (
        existing(team(0, secrets=[{"name": "mine", "env": ["WANDB_API_KEY", "NCCL_ALGO"]}])),
        "teams[0].secrets[0].env[1]: reserved-variable",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_case_is_one_issue(name: str) -> None:
    values, expected = BAD[name]
    check_issues("gpus", name, values, expected)


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
def test_valid_counterparts_are_accepted(name: str) -> None:
    parse(GOOD[name])
