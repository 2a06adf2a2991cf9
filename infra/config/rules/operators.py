"""Operators: versions, images and charts, the scheduler's, and those that sections and pools require."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.addons.registry import ADD_ONS
from infra.config.model import StackConfig
from infra.config.platform_record import installed
from infra.domain.pools import Network, Nodes, Workload
from infra.domain.scheduler import DEFAULT_SCHEDULER, Scheduler
from infra.queueing.backends import backend
from infra.sections.errors import ConfigIssue, issue, one_of, shown

GPU_OPERATOR: Final = "gpuOperator"
DEVICE_PLUGIN: Final = "devicePlugin"
_EXPORTER: Final = "dcgmExporter"
_EFA_PLUGIN: Final = "efaDevicePlugin"


def check_addon_versions(stack: StackConfig) -> Iterator[ConfigIssue]:
    version = stack.cluster.version
    for name in installed(stack) if version else ():
        add_on = ADD_ONS[name]
        if version and not add_on.supports(version):
            first, last = add_on.kubernetes
            yield issue(
                "addon-version",
                "cluster.version",
                f"{name} {add_on.version} does not support Kubernetes {version}",
                f"it supports {f'{first} to {last}' if last else f'{first} or newer'}",
                "choose such a version, or install your own version of the add-on and set "
                "provided: true",
            )


def check_addon_images(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require an image by digest for add-ons without a chart, and for no others."""
    for name, chosen in stack.operators.present().items():
        path, needs_image = f"operators.{name}.image", not (ADD_ONS[name].chart or chosen.provided)
        if chosen.image and not needs_image:
            yield issue(
                "addon-image-unused",
                path,
                f"{shown(chosen.image)} is not used: the chart or the cluster has its own image",
                "an image is valid only for an add-on that is installed without a chart",
                "remove it",
            )
        elif needs_image and not chosen.image:
            [image] = ADD_ONS[name].images
            yield issue(
                "missing",
                path,
                "missing",
                f"must be {image.registry}/{image.repository}@sha256:DIGEST, or a copy of it",
                f"add it: `crane digest {image.reference}` prints the digest",
            )


def check_charts(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Reject a mirror, and settings of charts, that nothing uses."""
    used = installed(stack)
    charts = [name for name in used if ADD_ONS[name].chart]
    if stack.mirror and not used:
        yield issue(
            "mirror-unused",
            "mirror",
            f"{shown(stack.mirror)} is not used",
            "requires an add-on that the stack installs, whose chart and images come from the "
            "mirror",
            "remove it",
        )
    for name in stack.charts:
        if name not in charts:
            yield issue(
                "chart-unused",
                f"charts.{name}",
                f"the stack installs no chart of {shown(name)}",
                f"must be one of {one_of(charts)}",
                "remove it, or install the add-on",
            )


def check_gpu_operators(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require one provider of GPU devices, with the plugins that go with it."""
    present = stack.operators.present()
    if GPU_OPERATOR in present:
        for name in (one for one in (DEVICE_PLUGIN, _EXPORTER) if one in present):
            yield issue(
                "conflicting-operators",
                f"operators.{name}",
                f"{name} conflicts with {GPU_OPERATOR}, which includes its own",
                f"must be either {GPU_OPERATOR}, or {DEVICE_PLUGIN} with an optional {_EXPORTER}",
                "remove one of them",
            )
    elif _EXPORTER in present and DEVICE_PLUGIN not in present:
        yield issue(
            "operator-required",
            f"operators.{_EXPORTER}",
            f"{DEVICE_PLUGIN} is missing",
            f"{_EXPORTER} requires {DEVICE_PLUGIN} ({GPU_OPERATOR} includes an exporter)",
            f"add {DEVICE_PLUGIN}, or replace both with {GPU_OPERATOR}",
        )
    made = [
        (index, pool)
        for index, pool in enumerate(stack.node_pools)
        if pool.nodes in (Nodes.MANAGED, Nodes.KARPENTER) and pool.workload is Workload.GPU_TRAINING
    ]
    efa = [index for index, pool in made if pool.network is Network.EFA]
    if stack.eks and made and not {GPU_OPERATOR, DEVICE_PLUGIN} & set(present):
        yield issue(
            "gpu-plugin-missing",
            f"operators.{GPU_OPERATOR}",
            "missing",
            f"GPU pools on EKS require {GPU_OPERATOR} or {DEVICE_PLUGIN}, which offer GPUs to pods",
            "add {provided: false} to install it",
        )
    if stack.eks and efa and _EFA_PLUGIN not in present:
        yield issue(
            "efa-plugin-missing",
            f"operators.{_EFA_PLUGIN}",
            f"missing, but nodePools[{efa[0]}] has network: efa",
            "EFA pools on EKS require it to offer adapters to pods",
            "add {provided: false} to install it",
        )


def check_required_operators(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require the operators whose objects a section creates, writes or reads."""
    groups = "Kueue and JobSet: each group of a run is a JobSet that queues by itself"
    needs = (
        ("costs", stack.costs, "kueue", "Kueue, whose queues it reads and holds"),
        ("steering", stack.steering, "kueue", "Kueue, between whose flavors it moves runs"),
        (
            "steering.cordonNamedNodes",
            stack.steering and stack.steering.cordon_named_nodes,
            "kubePrometheusStack",
            "Prometheus, in which runs name ranks",
        ),
        ("elasticRuns", stack.elastic_runs, "kueue", groups),
        ("elasticRuns", stack.elastic_runs, "jobset", groups),
    )
    for path, section, name, valid in needs:
        if section and name not in stack.operators.present():
            yield issue(
                "operator-required",
                path,
                f"operators.{name} is missing",
                f"requires {valid}",
                f"add {name} to operators, or remove {path.rpartition('.')[2]}",
            )


def _with(scheduler: Scheduler) -> str:
    return "" if scheduler is DEFAULT_SCHEDULER else f" with scheduler {scheduler.value}"


def check_scheduler_operator(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require the scheduler's operator, and no other scheduler's."""
    scheduler, present = stack.scheduler, stack.operators.present()
    operator = backend(scheduler).operator
    if operator and operator not in present:
        yield issue(
            "operator-required",
            f"operators.{operator}",
            "missing",
            f"must be {{provided: true}} or {{provided: false}}{_with(scheduler)}",
            "add it",
        )
    for other in Scheduler:
        foreign = backend(other).operator
        if other is not scheduler and foreign in present:
            yield issue(
                "second-scheduler",
                f"operators.{foreign}",
                "a second scheduler for runs",
                f"only the operator of scheduler {scheduler.value} is valid, which queues the runs",
                f"remove it, or set scheduler: {other.value}",
            )
    if "gang_timeouts" in stack.model_fields_set and "kueue" not in installed(stack):
        yield issue(
            "timeouts-unused",
            "gangTimeouts",
            "the stack does not install Kueue",
            "requires operators.kueue: {provided: false}",
            "remove it, and configure waitForPodsReady of the cluster's own Kueue",
        )


def check_native_version(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require a cluster version that serves the PodGroup API for scheduler: native."""
    scheduler, version = stack.scheduler, stack.cluster.version
    apis = backend(scheduler).gang_apis
    if not apis:
        if version and not stack.eks and not installed(stack):
            yield issue(
                "version-unused",
                "cluster.version",
                f"{shown(version)} is not used",
                "requires scheduler: native, or an add-on that the stack installs",
                "remove it",
            )
    elif stack.eks:
        *others, last = [one.value for one in Scheduler if not backend(one).gang_apis]
        yield issue(
            "native-on-eks",
            "scheduler",
            f"{shown(scheduler.value)} requires the PodGroup API, which EKS does not serve",
            f"must be {', '.join(others)} or {last}",
            "choose one",
        )
    elif version not in apis:
        problem = f"{shown(version)} does not serve the PodGroup API" if version else "missing"
        yield issue(
            "native-version",
            "cluster.version",
            f"{problem}",
            f"must be {' or '.join(apis)} with scheduler {scheduler.value}",
            "set the cluster's version, and enable GenericWorkload and GangScheduling there",
        )


def check_team_options(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Reject team options that the scheduler does not support."""
    scheduler = stack.scheduler
    if backend(scheduler).limits_by_pool:
        return
    for index, team in enumerate(stack.teams):
        only_kueue = {
            "fairWeight": team.fair_weight not in (None, 1),
            "borrowing": bool(team.borrowing),
            "lending": bool(team.lending),
            "onDemandUsdPerHour": team.on_demand_usd_per_hour is not None,
            # Only Kueue ends a run at its time limit.
            "caps.hours": team.caps.hours is not None,
            "caps.gpuHours": team.caps.gpu_hours is not None,
        }
        for option in (name for name, given in only_kueue.items() if given):
            yield issue(
                "kueue-only",
                f"teams[{index}].{option}",
                "only Kueue supports this option",
                f"must be absent{_with(scheduler)}",
                "remove it, or set scheduler: kueue",
            )
        if not scheduler.has_queues and any(team.guaranteed.values()):
            yield issue(
                "no-queues",
                f"teams[{index}].guaranteed",
                f"guarantees nodes of {', '.join(sorted(team.guaranteed))}",
                f"must be empty{_with(scheduler)}, which has no queues",
                "remove it, or choose a scheduler with queues",
            )
