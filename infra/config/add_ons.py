"""Add-ons that a stack installs, each from its section of the stack file and from facts of the whole stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from infra.addons import (
    cost_control,
    dcgm_exporter,
    device_plugin,
    efa_device_plugin,
    elastic_runs,
    fluent_bit,
    gpu_operator,
    kube_prometheus_stack,
    kueue,
    mirror,
    mpi_operator,
    policy_controller,
    run_page,
    steering,
    training_operator,
)
from infra.addons.component import AddOnsArgs, place
from infra.addons.model import AddOn, Installable
from infra.addons.registry import ADD_ONS
from infra.config import arguments
from infra.config.model import StackConfig
from infra.config.platform_record import has_prometheus, installed
from infra.kubernetes import chart_archives
from infra.kubernetes.helm import Chart
from infra.sections.observability import ObservabilityConfig
from infra.sections.teams import TRAINER_IMAGE


def _image(config: StackConfig, name: str) -> str:
    image = config.operators.present()[name].image
    assert image
    return image


def _cost_control(config: StackConfig) -> Installable:
    assert config.costs
    return cost_control.plan(
        config.costs,
        arguments.budgets(config),
        arguments.block_storage_class(config),
        prometheus=has_prometheus(config),
    )


def _elastic_runs(config: StackConfig) -> Installable:
    assert config.elastic_runs
    return elastic_runs.plan(config.elastic_runs)


def _prometheus(config: StackConfig) -> Installable:
    section = config.observability or ObservabilityConfig()
    storage_class = arguments.block_storage_class(config)
    return kube_prometheus_stack.plan(section, config.cluster.name, storage_class)


def _kueue(config: StackConfig) -> Installable:
    return kueue.plan(
        config.gang_timeouts,
        steered=config.steering is not None,
        after_jobset=config.eks is None,
    )


def _mpi_operator(config: StackConfig) -> Installable:
    queued = "kueue" in config.operators.present()
    trainer = config.images.get(TRAINER_IMAGE, "") if queued else ""
    return mpi_operator.plan(_image(config, "mpiOperator"), trainer)


def _policy_controller(config: StackConfig) -> Installable:
    assert config.signatures
    return policy_controller.plan(config.signatures)


def _run_page(config: StackConfig) -> Installable:
    assert config.run_page
    teams = [team.name for team in config.teams]
    return run_page.plan(config.run_page, teams, prometheus=has_prometheus(config))


def _steering(config: StackConfig) -> Installable:
    assert config.steering
    return steering.plan(
        config.steering, arguments.steering(config), prometheus=has_prometheus(config)
    )


_PLANS: Final[Mapping[str, Callable[[StackConfig], Installable]]] = {
    "costs": _cost_control,
    "dcgmExporter": lambda config: dcgm_exporter.plan(arguments.gpu_nodes(config)),
    "devicePlugin": lambda config: device_plugin.plan(arguments.gpu_nodes(config)),
    "efaDevicePlugin": lambda config: efa_device_plugin.plan(arguments.gpu_nodes(config)),
    "elasticRuns": _elastic_runs,
    "fluentBit": lambda config: fluent_bit.plan(arguments.log_shipper(config)),
    "gpuOperator": lambda config: gpu_operator.plan(arguments.gpu_nodes(config)),
    "kubePrometheusStack": _prometheus,
    "kueue": _kueue,
    "mpiOperator": _mpi_operator,
    "policyController": _policy_controller,
    "runPage": _run_page,
    "steering": _steering,
    "trainingOperator": lambda config: training_operator.plan(_image(config, "trainingOperator")),
}
"""Add-ons whose plan depends on the stack."""


def plan(add_on: AddOn, config: StackConfig) -> Installable:
    if add_on.name in _PLANS:
        found = _PLANS[add_on.name](config)
    else:
        assert add_on.plan
        found = add_on.plan()
    return place(found, selected=config.eks is not None)


def args(config: StackConfig) -> AddOnsArgs:
    """Return the add-ons that the stack installs, without those of the cluster's site."""
    wanted = [ADD_ONS[name] for name in installed(config) if ADD_ONS[name].plan]
    return AddOnsArgs(
        plans=tuple(plan(add_on, config) for add_on in wanted),
        charts={add_on.name: chart(config, add_on.name) for add_on in wanted},
        mirror=config.mirror or "",
    )


def chart(config: StackConfig, name: str) -> Chart:
    found = mirror.chart(name, config.mirror or "")
    if chosen := config.charts.get(name):
        return replace(found, digest=chosen.digest or "", values=chosen.values)
    return found


def charts(config: StackConfig) -> dict[str, Chart]:
    return {name: chart(config, name) for name in installed(config) if ADD_ONS[name].chart}


def pull_charts(config: StackConfig, project: Path) -> None:
    """Pull the archives of charts with a digest that the project lacks. Raises ChartError."""
    chart_archives.ensure(charts(config).values(), project)
