"""Controllers that the platform needs: versions, images, GPU device plugins, mirror."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, Field, create_model
from pydantic.alias_generators import to_snake

from infra.addons.model import AddOn
from infra.addons.registry import ADD_ONS, OPERATORS
from infra.config.errors import ConfigIssue, invalid, one_of, shown
from infra.config.partial import Check, PartialStack
from infra.config.sections.cluster import read_eks
from infra.config.sections.node_pools import (
    PoolConfig,
    read_pools,
)
from infra.config.types import REPOSITORY, Bool, Image, Str, StrictModel, matching
from infra.domain.pools import Network, Nodes, Workload


class OperatorConfig(StrictModel):
    """A controller that the platform needs."""

    provided: Bool = Field(description="true when the cluster has it, false to install it")
    """Whether the cluster already has the add-on: true uses it, false installs it."""
    image: Image | None = None
    """Image by digest, for add-ons without a chart; required to install them."""


class _Operators(StrictModel):
    """Controllers by name; those that are omitted are absent."""

    def present(self) -> dict[str, OperatorConfig]:
        """Return the controllers that the stack file names, in the registry's order."""
        named = {name: getattr(self, to_snake(name)) for name in OPERATORS}
        return {name: chosen for name, chosen in named.items() if chosen is not None}


def _field(name: str) -> Any:
    return Field(default=None, json_schema_extra={"description": ADD_ONS[name].summary})


if TYPE_CHECKING:

    class OperatorsConfig(_Operators):
        """Controllers by name."""

else:
    OperatorsConfig = create_model(
        "OperatorsConfig",
        __base__=_Operators,
        **{to_snake(name): (OperatorConfig | None, _field(name)) for name in OPERATORS},
    )


_MIRROR: Final = re.compile(REPOSITORY)


def _mirror(value: str) -> str:
    host = value.partition("/")[0]
    if not _MIRROR.fullmatch(value) or not ("." in host or ":" in host):
        raise invalid(
            "registry",
            "must be a registry, or a folder in one, such as registry.example.com/mirror, without a "
            "scheme",
        )
    return value


Mirror = Annotated[Str, AfterValidator(_mirror)]
"""Host and optional path that replaces every registry."""


class ChartConfig(StrictModel):
    """The chart of an add-on that the stack installs."""

    digest: (
        Annotated[
            Str,
            AfterValidator(
                matching(
                    "chart-digest",
                    r"sha256:[0-9a-f]{64}",
                    "sha256: and 64 hexadecimal digits",
                    "`python -m infra.cli.mirror FILE --digests` prints it",
                )
            ),
        ]
        | None
    ) = None
    """Digest of its archive, as `python -m infra.cli.mirror FILE --digests` prints it: the archive is pulled once,
    verified, and kept in the folder .charts, so that a preview needs no registry. Default: each preview and update
    pulls the chart."""
    values: dict[Str, Any] = Field(default={}, json_schema_extra={"type": "object"})
    """Values of the chart, merged over those that the stack sets, as Helm merges them."""


_NODES: Final = {"karpenter": "karpenter", "cluster-autoscaler": "clusterAutoscaler"}
"""The add-on of each autoscaler."""


def installed(stack: PartialStack) -> list[str]:
    """Return the add-ons that the stack installs, as far as it can be read."""
    named: Any = stack.raw.get("operators")
    operators = named if isinstance(named, dict) else {}
    wanted = {
        name
        for name, chosen in operators.items()
        if isinstance(chosen, dict) and chosen.get("provided") is False
    }
    if stack.raw.get("signatures") is not None:
        wanted.add("policyController")
    wanted |= {name for name in ("runPage", "costs") if stack.raw.get(name) is not None}
    if stack.provider == "eks":
        wanted.add(_NODES.get(str(stack.raw.get("autoscaler")), ""))
    return [name for name in ADD_ONS if name in wanted]


def _version(stack: PartialStack) -> str | None:
    """Return the cluster's Kubernetes version; None if it is missing or invalid."""
    eks = read_eks(stack)
    if eks:
        return eks.version
    cluster: Any = stack.raw.get("cluster")
    version = cluster.get("version") if isinstance(cluster, dict) else None
    return str(version) if re.fullmatch(r"[0-9]+\.[0-9]+", str(version)) else None


def check_addon_versions(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require a cluster version that each installed add-on supports."""
    version = _version(stack)
    if version is None:
        return
    for name in installed(stack):
        if not ADD_ONS[name].supports(version):
            yield ConfigIssue(
                path="cluster.version",
                code="addon-version",
                problem=f"{name} {ADD_ONS[name].version} does not support Kubernetes {version}",
                valid=f"it supports {_range(ADD_ONS[name])}",
                action="choose such a version, or install your own version of the add-on "
                "and set provided: true",
            )


def _range(add_on: AddOn) -> str:
    first, last = add_on.kubernetes
    return f"{first} to {last}" if last else f"{first} or newer"


def check_addon_images(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require an image by digest for add-ons without a chart, and for no others."""
    named: Any = stack.raw.get("operators")
    for name, chosen in named.items() if isinstance(named, dict) else ():
        if name not in ADD_ONS or not isinstance(chosen, dict):
            continue
        given, path = chosen.get("image"), f"operators.{name}.image"
        if given is not None and (ADD_ONS[name].chart or chosen.get("provided") is not False):
            yield ConfigIssue(
                path=path,
                code="addon-image-unused",
                problem=f"{shown(given)} is not used: the chart or the cluster has its own image",
                valid="an image is valid only for an add-on that is installed without a chart",
                action="remove it",
            )
        elif given is None and not ADD_ONS[name].chart and chosen.get("provided") is False:
            [image] = ADD_ONS[name].images
            yield ConfigIssue(
                path=path,
                code="missing",
                problem="missing",
                valid=f"must be {image.registry}/{image.repository}@sha256:DIGEST, or a copy of it",
                action=f"add it: `crane digest {image.reference}` prints the digest",
            )


def check_mirror_used(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject a mirror of a stack that installs no add-on."""
    named = stack.raw.get("mirror")
    if isinstance(named, str) and named and not installed(stack):
        yield ConfigIssue(
            path="mirror",
            code="mirror-unused",
            problem=f"{shown(named)} is not used",
            valid="requires an add-on that the stack installs, whose chart and images "
            "come from the mirror",
            action="remove it",
        )


def check_charts_used(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject settings of charts that the stack does not install."""
    named: Any = stack.raw.get("charts")
    valid = [name for name in installed(stack) if ADD_ONS[name].chart]
    for name in named if isinstance(named, dict) else ():
        if name not in valid:
            yield ConfigIssue(
                path=f"charts.{name}",
                code="chart-unused",
                problem=f"the stack installs no chart of {shown(name)}",
                valid=f"must be one of {one_of(valid)}",
                action="remove it, or install the add-on",
            )


OPERATOR: Final = "gpuOperator"


PLUGIN: Final = "devicePlugin"


EXPORTER: Final = "dcgmExporter"


EFA_PLUGIN: Final = "efaDevicePlugin"


def made_by_stack(pool: PoolConfig) -> bool:
    return pool.nodes in (Nodes.MANAGED, Nodes.KARPENTER)


def check_gpu_operators(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require one provider of GPU devices, with the plugins that go with it."""
    if stack.has_operator(OPERATOR):
        for name in (PLUGIN, EXPORTER):
            if stack.has_operator(name):
                yield ConfigIssue(
                    path=f"operators.{name}",
                    code="conflicting-operators",
                    problem=f"{name} conflicts with {OPERATOR}, which includes its own",
                    valid=f"must be either {OPERATOR}, or {PLUGIN} with an optional {EXPORTER}",
                    action="remove one of them",
                )
    elif stack.has_operator(EXPORTER) and not stack.has_operator(PLUGIN):
        yield ConfigIssue(
            path=f"operators.{EXPORTER}",
            code="operator-required",
            problem=f"{PLUGIN} is missing",
            valid=f"{EXPORTER} requires {PLUGIN} ({OPERATOR} includes an exporter)",
            action=f"add {PLUGIN}, or replace both with {OPERATOR}",
        )
    yield from _offered(stack)


def _offered(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require device plugins for nodes that the stack creates; existing clusters have their own."""
    made = [
        (index, pool)
        for index, pool in read_pools(stack)
        if made_by_stack(pool) and pool.workload is Workload.GPU_TRAINING
    ]
    if stack.provider != "eks" or stack.operators is None:
        return
    if made and not (stack.has_operator(OPERATOR) or stack.has_operator(PLUGIN)):
        yield ConfigIssue(
            path=f"operators.{OPERATOR}",
            code="gpu-plugin-missing",
            problem="missing",
            valid=f"GPU pools on EKS require {OPERATOR} or {PLUGIN}, which offer GPUs to pods",
            action="add {provided: false} to install it",
        )
    efa = [index for index, pool in made if pool.network is Network.EFA]
    if efa and not stack.has_operator(EFA_PLUGIN):
        yield ConfigIssue(
            path=f"operators.{EFA_PLUGIN}",
            code="efa-plugin-missing",
            problem=f"missing, but nodePools[{efa[0]}] has network: efa",
            valid="EFA pools on EKS require it to offer adapters to pods",
            action="add {provided: false} to install it",
        )


CHECKS: Final[tuple[Check, ...]] = (
    check_addon_versions,
    check_addon_images,
    check_mirror_used,
    check_charts_used,
    check_gpu_operators,
)
