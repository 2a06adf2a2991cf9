"""Workloads of all add-ons: no CPU limit, a system priority class, and controllers on system nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from infra.addons import controllers
from infra.addons.model import Installable
from infra.addons.registry import ADD_ONS
from infra.config import add_ons, parse
from infra.kubernetes import system_nodes
from infra.kubernetes.objects import Manifest
from tests import committed
from tests.unit.infra.test_add_ons import BY_NAME, at
from tests.unit.infra.test_run_page import SECTION

OPS = "registry.test/ops@sha256:" + "1" * 64

CLASSES = {controllers.PRIORITY, controllers.NODE_PRIORITY}

BY_SITE = {
    "karpenter": ("prod", "aws-karpenter-controller"),
    "clusterAutoscaler": ("dev", "aws-autoscaler-controller"),
}
"""Charts that the site installs: a stack with it, and the name of the release."""

LIMITED_BY_CHART = {
    "kueue": "controllerManager.manager.resources.limits.cpu",
    "jobset": "controller.resources.limits.cpu",
    "gpuOperator": "operator.resources.limits.cpu",
    "dcgmExporter": "resources.limits.cpu",
    "policyController": "webhook.resources.limits.cpu",
    "yunikorn": "resources.limits.cpu",
}
"""Charts that limit the CPU of what a stack runs, by their `values.yaml`. Only null removes it: Helm keeps what
the stack does not set, and writes a null that removes nothing as a limit without a value, which is 0."""


@cache
def plans() -> Mapping[str, Installable]:
    """Every add-on that a stack installs, as some stack does."""
    local = committed.values("local")
    local["teams"][0]["budget"] = {"usdPerMonth": 100, "action": "drain"}
    local |= {name: {"image": OPS} for name in ("costs", "steering", "elasticRuns")}
    local["runPage"] = SECTION
    dev = committed.values("dev")
    made = [plan for values in (local, dev) for plan in add_ons.args(parse(values)).plans]
    return {plan.add_on: plan for plan in made} | BY_NAME


def values_of(add_on: str) -> Mapping[str, Any]:
    """The values of a chart."""
    if add_on not in BY_SITE:
        return plans()[add_on].values
    stack, name = BY_SITE[add_on]
    (release,) = [one for one in committed.rendered(stack) if one["name"] == name]
    found: Mapping[str, Any] = release["inputs"]["values"]
    return found


def cpu_limits(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every CPU limit in values or in an object, null included, with its path."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            here = f"{path}.{key}".removeprefix(".")
            if key == "limits" and isinstance(value, Mapping) and "cpu" in value:
                yield f"{here}.cpu", value["cpu"]
            yield from cpu_limits(value, here)
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from cpu_limits(one, path)


NO_WORKLOAD = {"karpenterCrd"}

CHARTS = [name for name, made in ADD_ONS.items() if made.chart and name not in NO_WORKLOAD]


@pytest.mark.parametrize("add_on", CHARTS)
def test_values_remove_the_cpu_limit_of_the_chart_and_set_none(add_on: str) -> None:
    removed = {LIMITED_BY_CHART[add_on]: None} if add_on in LIMITED_BY_CHART else {}
    assert dict(cpu_limits(values_of(add_on))) == removed


ON_EVERY_NODE = {"devicePlugin", "dcgmExporter", "efaDevicePlugin", "fluentBit"}
"""Charts with DaemonSets only."""


def on_system_nodes(pod: Mapping[str, Any]) -> bool:
    """Whether pods tolerate the taint of system nodes and select them."""
    selected = pod.get("nodeSelector", {}).items() >= system_nodes.LABELS.items()
    return selected and system_nodes.TOLERATIONS[0] in pod.get("tolerations", ())


@pytest.mark.parametrize("add_on", sorted({*CHARTS} - {*BY_SITE} - ON_EVERY_NODE))
def test_values_place_every_controller_of_a_chart_on_system_nodes(add_on: str) -> None:
    plan = on_eks()[add_on]
    found = [
        {"tolerations": at(plan.values, one.tolerations)}
        | {"nodeSelector": at(plan.values, one.node_selector)}
        for one in ADD_ONS[add_on].placed
        if not _off(plan.values, one.tolerations)
    ]
    assert found and all(map(on_system_nodes, found))


@cache
def on_eks() -> Mapping[str, Installable]:
    """Every add-on that a stack on EKS can install."""
    extra = {name: {"image": OPS} for name in ("costs", "steering", "elasticRuns")}
    config = parse(committed.values("prod") | extra | {"runPage": SECTION})
    return BY_NAME | {plan.add_on: plan for plan in add_ons.args(config).plans}


def test_every_deployment_of_an_add_on_selects_system_nodes() -> None:
    made = [
        one for plan in on_eks().values() for one in plan.objects if one["kind"] == "Deployment"
    ]
    names = {one["metadata"]["name"] for one in made}
    assert {"costs", "mpi-operator", "run-page", "steering"} <= names
    for one in made:
        assert on_system_nodes(one["spec"]["template"]["spec"]), one["metadata"]["name"]


def workloads() -> Iterator[tuple[str, Manifest, dict[str, Any]]]:
    """Every object of a plan that makes pods, with its add-on and its pods' spec."""
    for plan in plans().values():
        for made in (*plan.before, *plan.objects):
            spec = made.get("spec", {})
            spec = spec.get("jobTemplate", {}).get("spec", spec)
            if pod := spec.get("template", {}).get("spec"):
                yield plan.add_on, made, pod


def test_every_add_on_with_pods_is_covered() -> None:
    without_chart = {add_on for add_on, _, _ in workloads()}
    on_eks = {"nodeMonitoringAgent"}
    assert sorted({*CHARTS, *NO_WORKLOAD, *without_chart, *on_eks}) == sorted(ADD_ONS)


def test_objects_of_an_add_on_have_a_memory_limit_and_no_cpu_limit() -> None:
    for add_on, _, pod in workloads():
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert list(container["resources"]["limits"]) == ["memory"], add_on


def test_objects_of_an_add_on_have_a_system_priority_class() -> None:
    for add_on, made, pod in workloads():
        name = f"{add_on}: {made['kind']}/{made['metadata']['name']}"
        assert pod.get("priorityClassName") in CLASSES, name


def _off(values: Mapping[str, Any], path: str) -> bool:
    return values.get(path.partition(".")[0]) == {"enabled": False}
