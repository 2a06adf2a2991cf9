"""From a stack file to the plans of the add-ons that it installs: one line for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from infra.addons import (
    dcgm_exporter,
    device_plugin,
    efa_device_plugin,
    external_secrets,
    fluent_bit,
    gpu_operator,
    jobset,
    kube_prometheus_stack,
    kueue,
    mpi_operator,
    policy_controller,
    trainer,
    training_operator,
    volcano,
    yunikorn,
)
from infra.addons.component import AddOnsArgs
from infra.addons.model import Installable
from infra.config import arguments, logs_arguments, observability_arguments, platform_record
from infra.config.model import StackConfig
from infra.config.operators_model import OperatorConfig
from infra.domain.addon_versions import ADD_ONS
from infra.domain.pools import Autoscaler, Nodes


def _image(operator: OperatorConfig | None) -> str:
    """Of an operator without a chart, which a stack that installs it names."""
    assert operator and operator.image
    return operator.image


PLANS: Final[Mapping[str, Callable[[StackConfig], Installable]]] = {
    "kueue": lambda config: kueue.plan(),
    "volcano": lambda config: volcano.plan(),
    "yunikorn": lambda config: yunikorn.plan(),
    "jobset": lambda config: jobset.plan(),
    "kubeflowTrainer": lambda config: trainer.plan(),
    "trainingOperator": lambda config: training_operator.plan(
        _image(config.operators.training_operator)
    ),
    "mpiOperator": lambda config: mpi_operator.plan(_image(config.operators.mpi_operator)),
    "externalSecrets": lambda config: external_secrets.plan(),
    "kubePrometheusStack": lambda config: kube_prometheus_stack.plan(
        observability_arguments.kube_prometheus_stack(config)
    ),
    "fluentBit": lambda config: fluent_bit.plan(logs_arguments.shipper(config)),
    "gpuOperator": lambda config: gpu_operator.plan(arguments.gpu_nodes(config)),
    "devicePlugin": lambda config: device_plugin.plan(arguments.gpu_nodes(config)),
    "dcgmExporter": lambda config: dcgm_exporter.plan(arguments.gpu_nodes(config)),
    "efaDevicePlugin": lambda config: efa_device_plugin.plan(arguments.gpu_nodes(config)),
}
"""By name in `operators`."""


def args(config: StackConfig) -> AddOnsArgs:
    """Add-ons that the stack installs; perhaps none."""
    plans = [PLANS[name](config) for name in platform_record.to_install(config)]
    if config.signatures:
        plans.append(policy_controller.plan(config.signatures.signer))
    return AddOnsArgs(plans=tuple(plans), mirror=config.mirror or "")


def installed(config: StackConfig) -> tuple[str, ...]:
    """Names of all add-ons that the stack brings to its cluster, those of its nodes included."""
    names = {plan.add_on for plan in args(config).plans}
    if config.on_aws:
        names |= of_autoscaler(config.autoscaler, config.pools_of(Nodes.KARPENTER) != ())
    return tuple(name for name in ADD_ONS if name in names)


def of_autoscaler(autoscaler: Autoscaler, karpenter: bool) -> set[str]:
    """What makes nodes, or sizes their groups."""
    found = {"karpenter", "karpenterCrd"} if karpenter else set()
    return found | ({"clusterAutoscaler"} if autoscaler is Autoscaler.CLUSTER_AUTOSCALER else set())
