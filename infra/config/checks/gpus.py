"""GPUs: one driver, one device plugin, shares of a GPU only where they hurt nobody."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import pydantic

from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown
from infra.config.gpus_model import SharingConfig
from infra.config.model import PoolConfig
from infra.domain import catalog, fabric
from infra.domain.gpu_sharing import SharingMode, instances, profiles
from infra.domain.pools import Network, Nodes, Workload
from infra.domain.tier import TIERS
from infra.queueing import quotas
from infra.queueing.quotas import QueueTeam

OPERATOR: Final = "gpuOperator"
PLUGIN: Final = "devicePlugin"
EXPORTER: Final = "dcgmExporter"
EFA_PLUGIN: Final = "efaDevicePlugin"

_ONE_TEAM: Final = {
    SharingMode.TIME_SLICING: "time-slicing isolates neither memory nor faults",
    SharingMode.MPS: "a fault of one MPS client ends the others",
}


def _named(parts: PartialStack, name: str) -> bool:
    return parts.operators is not None and parts.operators.get(name) is not None


def _made_by_stack(pool: PoolConfig) -> bool:
    return pool.nodes in (Nodes.MANAGED, Nodes.KARPENTER)


def _sharing(parts: PartialStack) -> dict[str, SharingConfig]:
    """Entries that can be read; what is wrong with others is told already."""
    gpus: Any = parts.raw.get("gpus")
    entries = gpus.get("sharing") if isinstance(gpus, dict) else None
    found = {}
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        with contextlib.suppress(pydantic.ValidationError):
            found[str(name)] = SharingConfig.model_validate(entry)
    return found


def check_gpu_operators(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require one provider of GPU devices, with the plugins that go with it."""
    if _named(parts, OPERATOR):
        for name in (PLUGIN, EXPORTER):
            if _named(parts, name):
                yield ConfigIssue(
                    path=f"operators.{name}",
                    code="conflicting-operators",
                    problem=f"{name} conflicts with {OPERATOR}, which includes its own",
                    valid=f"must be either {OPERATOR}, or {PLUGIN} with an optional {EXPORTER}",
                    action="remove one of them",
                )
    elif _named(parts, EXPORTER) and not _named(parts, PLUGIN):
        yield ConfigIssue(
            path=f"operators.{EXPORTER}",
            code="operator-required",
            problem=f"{PLUGIN} is missing",
            valid=f"{EXPORTER} requires {PLUGIN} ({OPERATOR} includes an exporter)",
            action=f"add {PLUGIN}, or replace both with {OPERATOR}",
        )
    yield from _offered(parts)


def _offered(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Devices of nodes that the stack makes; whoever runs an existing cluster has seen to its own."""
    made = [
        (index, pool)
        for index, pool in parts.pools
        if _made_by_stack(pool) and pool.workload is Workload.GPU_TRAINING
    ]
    if parts.provider != "eks" or parts.operators is None:
        return
    if made and not (_named(parts, OPERATOR) or _named(parts, PLUGIN)):
        yield ConfigIssue(
            path=f"operators.{OPERATOR}",
            code="gpu-plugin-missing",
            problem="missing",
            valid=f"GPU pools on EKS require {OPERATOR} or {PLUGIN}, which offer GPUs to pods",
            action="add {provided: false} to install it",
        )
    efa = [index for index, pool in made if pool.network is Network.EFA]
    if efa and not _named(parts, EFA_PLUGIN):
        yield ConfigIssue(
            path=f"operators.{EFA_PLUGIN}",
            code="efa-plugin-missing",
            problem=f"missing, but nodePools[{efa[0]}] has network: efa",
            valid="EFA pools on EKS require it to offer adapters to pods",
            action="add {provided: false} to install it",
        )


def check_gpu_driver(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require one source of the NVIDIA driver per node."""
    gpus: Any = parts.raw.get("gpus")
    if not isinstance(gpus, dict) or gpus.get("driver") != "operator":
        return
    if not _named(parts, OPERATOR):
        yield ConfigIssue(
            path="gpus.driver",
            code="operator-required",
            problem=f"'operator' requires operators.{OPERATOR}",
            valid=f"{OPERATOR} installs the driver",
            action=f"add operators.{OPERATOR}, or remove gpus.driver",
        )
    made = [index for index, pool in parts.pools if _made_by_stack(pool)]
    if made:
        yield ConfigIssue(
            path="gpus.driver",
            code="driver-conflict",
            problem=f"'operator' conflicts with nodePools[{made[0]}], whose machine image "
            "includes the NVIDIA driver",
            valid="must be image on EKS: two drivers conflict over the kernel module",
            action="remove it",
        )


def check_gpu_sharing(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require one sharing mode per entry, supported by its pool; one team per shared pool."""
    for name, config in _sharing(parts).items():
        path = f"gpus.sharing.{name}"
        found = parts.gpu_pool(name)
        if found is None:
            names = [pool.name for _, pool in parts.pools if pool.workload is Workload.GPU_TRAINING]
            yield ConfigIssue(
                path=path,
                code="unknown-name",
                problem=f"{shown(name)} is not a GPU pool",
                valid=f"must be one of {one_of(names)}",
                action=did_you_mean(name, names, "name a GPU pool"),
            )
            continue
        if len(config.modes) != 1:
            yield ConfigIssue(
                path=path,
                code="sharing-mode",
                problem=f"{' and '.join(mode.value for mode in config.modes)} are set"
                if config.modes
                else "no mode is set",
                valid="exactly one of mig, timeSlicing and mps is required",
                action="keep one of them" if config.modes else "add one, or remove the pool",
            )
            continue
        yield from _fits(parts, path, found[1], config)


def _fits(
    parts: PartialStack, path: str, pool: PoolConfig, config: SharingConfig
) -> Iterator[ConfigIssue]:
    mode = config.modes[0]
    if pool.nodes is Nodes.KARPENTER:
        yield ConfigIssue(
            path=path,
            code="sharing-on-karpenter",
            problem="the pool's nodes are karpenter",
            valid="must be managed or existing: Karpenter counts whole GPUs and would "
            "launch a node per few shares",
            action="set nodes: managed, or remove it",
        )
    if not pool.nodes.simulated:
        yield from _who_does_it(parts, path, mode)
    if mode is SharingMode.MIG:
        yield from _profile(path, pool, str(config.mig))
    else:
        yield from _one_team(parts, path, pool, mode)


def _who_does_it(parts: PartialStack, path: str, mode: SharingMode) -> Iterator[ConfigIssue]:
    if mode is SharingMode.TIME_SLICING:
        if not (_named(parts, OPERATOR) or _named(parts, PLUGIN)):
            yield ConfigIssue(
                path=f"{path}.{mode.value}",
                code="operator-required",
                problem="no operator provides time-slicing",
                valid=f"requires operators.{OPERATOR} or operators.{PLUGIN}, whose device "
                "plugin implements it",
                action="add one of them to operators",
            )
    elif not _named(parts, OPERATOR):
        yield ConfigIssue(
            path=f"{path}.{mode.value}",
            code="operator-required",
            problem=f"operators.{OPERATOR} is missing",
            valid=f"requires operators.{OPERATOR}, which prepares the nodes",
            action=f"add operators.{OPERATOR}, or use timeSlicing",
        )


def _profile(path: str, pool: PoolConfig, profile: str) -> Iterator[ConfigIssue]:
    known = catalog.load().types
    if any(name not in known for name in pool.instance_types):
        return  # A mistake of its own.
    models = pool.pool("").gpu_models
    if instances(profile, models) is None:
        can = profiles(models)
        yield ConfigIssue(
            path=f"{path}.mig",
            code="mig-profile",
            problem=f"{shown(profile)} is not a profile of {' and '.join(models)}",
            valid=f"must be one of {', '.join(can)}"
            if can
            else "the pool's GPUs have no profile in common",
            action=did_you_mean(profile, can, "choose one" if can else "remove it"),
        )


def _one_team(
    parts: PartialStack, path: str, pool: PoolConfig, mode: SharingMode
) -> Iterator[ConfigIssue]:
    """Who may use the pool: one team, and not one of production."""
    if not parts.all_known:
        return
    here = [
        team
        for _, team in parts.teams
        if quotas.usable(
            QueueTeam(
                name=team.name,
                tier=team.tier,
                guaranteed=team.guaranteed,
                borrowing=team.borrowing,
                on_demand_usd_per_hour=team.on_demand_usd_per_hour,
            ),
            [pool.pool("")],
        )
    ]
    production = [team.name for team in here if not TIERS[team.tier].shares_gpus]
    if production:
        yield ConfigIssue(
            path=f"{path}.{mode.value}",
            code="sharing-with-production",
            problem=f"production teams may use the pool: {', '.join(production)}",
            valid="must be a pool of research teams only: production trains on whole GPUs",
            action=f"set borrowing: {{{pool.name}: 0}} for them, or use mig",
        )
    if len(here) > 1:
        yield ConfigIssue(
            path=f"{path}.{mode.value}",
            code="sharing-across-teams",
            problem=f"several teams may use the pool: {', '.join(team.name for team in here)}",
            valid=f"must be a pool of one team: {_ONE_TEAM[mode]}",
            action=f"set borrowing: {{{pool.name}: 0}} for the others, or use mig",
        )


def check_fabric(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require RoCE and fabric facts on existing nodes only."""
    for index, pool in parts.pools:
        path = f"nodePools[{index}]"
        roce = pool.network is Network.ROCE
        if roce and pool.nodes is not Nodes.EXISTING:
            yield ConfigIssue(
                path=f"{path}.network",
                code="roce-nodes",
                problem=f"'roce' is not available on nodes that are {pool.nodes.value}",
                valid="requires nodes: existing (EC2 offers EFA instead)",
                action="set network: efa or tcp",
            )
        elif roce and "rdmaResource" not in _facts(parts, index):
            yield ConfigIssue(
                path=f"{path}.fabric.rdmaResource",
                code="missing",
                problem="missing",
                valid="network: roce requires the resource through which pods get adapters, "
                "such as rdma/hca",
                action="add it",
            )
        if pool.fabric is None:
            continue
        if pool.nodes is not Nodes.EXISTING:
            yield ConfigIssue(
                path=f"{path}.fabric",
                code="fabric-nodes",
                problem=f"not valid on nodes that are {pool.nodes.value}",
                valid="requires nodes: existing (the fabric of other nodes is known)",
                action="remove it",
            )
        elif not roce:
            yield from _only_roce(path, pool)


def _facts(parts: PartialStack, index: int) -> dict[str, Any]:
    """What the file itself says of a pool's network, well-formed or not."""
    named = parts.raw["nodePools"][index].get("fabric")
    return named if isinstance(named, dict) else {}


def _only_roce(path: str, pool: PoolConfig) -> Iterator[ConfigIssue]:
    given = pool.fabric.model_dump(by_alias=True) if pool.fabric else {}
    for key in ("rdmaResource", "adapters", "gidIndex"):
        if given.get(key) not in (None, ()):
            yield ConfigIssue(
                path=f"{path}.fabric.{key}",
                code="fabric-network",
                problem=f"not valid with network: {pool.network.value}",
                valid="requires network: roce",
                action="remove it, or set network: roce",
            )


def check_network_variables(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Reject secrets that set NCCL's network variables, which follow from the pool."""
    for number, team in parts.teams:
        for place, secret in enumerate(team.secrets):
            for index, key in enumerate(secret.env):
                if fabric.owns_variable(key):
                    yield ConfigIssue(
                        path=f"teams[{number}].secrets[{place}].env[{index}]",
                        code="reserved-variable",
                        problem=f"{shown(key)} is set by the platform",
                        valid="network variables follow from the pool and cannot come from a secret",
                        action="remove it, and describe the network in the pool's fabric",
                    )
