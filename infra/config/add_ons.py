"""From a stack file to the add-ons that it installs, and the settings that their plans take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from infra.addons.component import AddOnsArgs
from infra.addons.fluent_bit import FluentBitArgs
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.kube_prometheus_stack import KubePrometheusStackArgs
from infra.addons.model import AddOn, ControllerImage, Installable
from infra.addons.policy_controller import POLICY_CONTROLLER
from infra.addons.registry import ADD_ONS
from infra.addons.signatures import Signer
from infra.config import arguments, platform_record
from infra.config.model import StackConfig
from infra.domain.pools import Autoscaler, Nodes


def _image(config: StackConfig, name: str) -> ControllerImage:
    image = config.operators.present()[name].image
    assert image
    return ControllerImage(image)


def _signer(config: StackConfig) -> Signer:
    assert config.signatures
    return config.signatures.signer


SETTINGS: Final[Mapping[object, Callable[[StackConfig, str], Any]]] = {
    ControllerImage: _image,
    FluentBitArgs: lambda config, _: arguments.log_shipper(config),
    GpuNodesArgs: lambda config, _: arguments.gpu_nodes(config),
    KubePrometheusStackArgs: lambda config, _: arguments.prometheus_release(config),
    Signer: lambda config, _: _signer(config),
}
"""By type of settings, their value for a stack that installs the named add-on."""


def plan(add_on: AddOn, config: StackConfig) -> Installable:
    """What this stack installs of the add-on."""
    assert add_on.plan
    if add_on.settings is None:
        return add_on.plan()
    return add_on.plan(SETTINGS[add_on.settings](config, add_on.name))


def args(config: StackConfig) -> AddOnsArgs:
    """Return the add-ons that the stack installs."""
    wanted = [ADD_ONS[name] for name in platform_record.to_install(config)]
    if config.signatures:
        wanted.append(POLICY_CONTROLLER)
    return AddOnsArgs(
        plans=tuple(plan(add_on, config) for add_on in wanted), mirror=config.mirror or ""
    )


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
