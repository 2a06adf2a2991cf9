"""Add-ons that a stack installs, with their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from infra.addons import mirror
from infra.addons.component import AddOnsArgs
from infra.addons.cost_control import COST_CONTROL, CostControlArgs
from infra.addons.elastic_runs import ELASTIC_RUNS, ElasticRunsArgs
from infra.addons.fluent_bit import FluentBitArgs
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.kube_prometheus_stack import KubePrometheusStackArgs
from infra.addons.kueue import KueueArgs
from infra.addons.model import AddOn, ControllerImage, Installable
from infra.addons.mpi_operator import MpiOperatorArgs
from infra.addons.policy_controller import POLICY_CONTROLLER
from infra.addons.registry import ADD_ONS
from infra.addons.run_page import RUN_PAGE, RunPageArgs
from infra.addons.signatures import Signer
from infra.addons.steering import STEERING, SteeringArgs
from infra.config import arguments, platform_record
from infra.config.model import StackConfig
from infra.domain.pools import Autoscaler, Nodes
from infra.kubernetes import chart_archives
from infra.kubernetes.helm import Chart
from infra.sections.validation import TRAINER_IMAGE


def _image(config: StackConfig, name: str) -> ControllerImage:
    image = config.operators.present()[name].image
    assert image
    return ControllerImage(image)


def _mpi_operator(config: StackConfig, name: str) -> MpiOperatorArgs:
    queued = "kueue" in config.operators.present()
    trainer = config.images.get(TRAINER_IMAGE, "") if queued else ""
    return MpiOperatorArgs(image=_image(config, name), trainer=trainer)


def _signer(config: StackConfig) -> Signer:
    assert config.signatures
    return config.signatures.signer


SETTINGS: Final[Mapping[object, Callable[[StackConfig, str], Any]]] = {
    ControllerImage: _image,
    CostControlArgs: lambda config, _: arguments.cost_control(config),
    ElasticRunsArgs: lambda config, _: config.elastic_runs and config.elastic_runs.args(),
    FluentBitArgs: lambda config, _: arguments.log_shipper(config),
    GpuNodesArgs: lambda config, _: arguments.gpu_nodes(config),
    MpiOperatorArgs: _mpi_operator,
    KubePrometheusStackArgs: lambda config, _: arguments.prometheus_release(config),
    RunPageArgs: lambda config, _: arguments.run_page(config),
    SteeringArgs: lambda config, _: arguments.steering_program(config),
    KueueArgs: lambda config, _: KueueArgs(
        steered=config.steering is not None,
        timeouts=config.gang_timeouts.timeouts,
        after_jobset=config.cluster.provider == "existing",
    ),
    Signer: lambda config, _: _signer(config),
}
"""By type of settings: the function that returns their value for the named add-on of a stack."""


def plan(add_on: AddOn, config: StackConfig) -> Installable:
    """Return what this stack installs of the add-on."""
    assert add_on.plan
    if add_on.settings is None:
        return add_on.plan()
    return add_on.plan(SETTINGS[add_on.settings](config, add_on.name))


def args(config: StackConfig) -> AddOnsArgs:
    """Return the add-ons that the stack installs."""
    wanted = [ADD_ONS[name] for name in platform_record.to_install(config)]
    if config.signatures:
        wanted.append(POLICY_CONTROLLER)
    if config.run_page:
        wanted.append(RUN_PAGE)
    if config.costs:
        wanted.append(COST_CONTROL)
    if config.steering:
        wanted.append(STEERING)
    if config.elastic_runs:
        wanted.append(ELASTIC_RUNS)
    return AddOnsArgs(
        plans=tuple(plan(add_on, config) for add_on in wanted),
        charts={add_on.name: chart(config, add_on.name) for add_on in wanted},
        mirror=config.mirror or "",
    )


def chart(config: StackConfig, name: str) -> Chart:
    """Return an add-on's chart with the stack's settings."""
    found = mirror.chart(name, config.mirror or "")
    if chosen := config.charts.get(name):
        return replace(found, digest=chosen.digest or "", values=chosen.values)
    return found


def charts(config: StackConfig) -> dict[str, Chart]:
    """Return the charts of all add-ons that the stack installs, by name of the add-on."""
    return {name: chart(config, name) for name in installed(config) if ADD_ONS[name].chart}


def pull_charts(config: StackConfig, project: Path) -> None:
    """Pull the archives of charts with a digest that the project lacks. Raises ChartError."""
    chart_archives.ensure(charts(config).values(), project)


def installed(config: StackConfig) -> tuple[str, ...]:
    """Return the names of all add-ons that the stack installs, those that create nodes included."""
    names = {plan.add_on for plan in args(config).plans}
    if config.on_aws:
        names |= of_autoscaler(config.autoscaler, config.pools_of(Nodes.KARPENTER) != ())
    return tuple(name for name in ADD_ONS if name in names)


def of_autoscaler(autoscaler: Autoscaler, karpenter: bool) -> set[str]:
    """Return the names of the add-ons that create nodes or resize their groups."""
    found = {"karpenter", "karpenterCrd"} if karpenter else set()
    return found | ({"clusterAutoscaler"} if autoscaler is Autoscaler.CLUSTER_AUTOSCALER else set())
