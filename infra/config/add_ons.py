"""Add-ons that a stack installs, each from its section of the stack file and from facts of the whole stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

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
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.model import AddOn, Installable
from infra.addons.registry import ADD_ONS
from infra.config import arguments
from infra.config.model import StackConfig
from infra.config.platform_record import has_prometheus, installed
from infra.kubernetes import chart_archives
from infra.kubernetes.helm import Chart
from infra.sections.observability import ObservabilityConfig
from infra.sections.teams import TRAINER_IMAGE

_T = TypeVar("_T")


def _present(section: _T | None) -> _T:
    """Return a section or an image that a stack with the add-on has."""
    assert section
    return section


def _image(config: StackConfig, name: str) -> str:
    return _present(config.operators.present()[name].image)


def _gpus(
    plan: Callable[[GpuNodesArgs], Installable],
) -> Callable[[StackConfig], Installable]:
    return lambda config: plan(arguments.gpu_nodes(config))


def _mpi_operator(config: StackConfig) -> Installable:
    queued = "kueue" in config.operators.present()
    trainer = config.images.get(TRAINER_IMAGE, "") if queued else ""
    return mpi_operator.plan(_image(config, "mpiOperator"), trainer)


_PLANS: Final[Mapping[str, Callable[[StackConfig], Installable]]] = {
    "costs": lambda config: cost_control.plan(
        _present(config.costs),
        arguments.budgets(config),
        arguments.block_storage_class(config),
        prometheus=has_prometheus(config),
    ),
    "dcgmExporter": _gpus(dcgm_exporter.plan),
    "devicePlugin": _gpus(device_plugin.plan),
    "efaDevicePlugin": _gpus(efa_device_plugin.plan),
    "elasticRuns": lambda config: elastic_runs.plan(_present(config.elastic_runs)),
    "fluentBit": lambda config: fluent_bit.plan(arguments.log_shipper(config)),
    "gpuOperator": _gpus(gpu_operator.plan),
    "kubePrometheusStack": lambda config: kube_prometheus_stack.plan(
        config.observability or ObservabilityConfig(),
        config.cluster.name,
        arguments.block_storage_class(config),
    ),
    "kueue": lambda config: kueue.plan(
        config.gang_timeouts,
        steered=config.steering is not None,
        after_jobset=config.eks is None,
    ),
    "mpiOperator": _mpi_operator,
    "policyController": lambda config: policy_controller.plan(_present(config.signatures)),
    "runPage": lambda config: run_page.plan(
        _present(config.run_page),
        [team.name for team in config.teams],
        prometheus=has_prometheus(config),
    ),
    "steering": lambda config: steering.plan(
        _present(config.steering), arguments.steering(config), prometheus=has_prometheus(config)
    ),
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
