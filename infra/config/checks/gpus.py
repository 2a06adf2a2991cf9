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
    SharingMode.TIME_SLICING: "nothing keeps its users' memory or faults apart",
    SharingMode.MPS: "a fault of one of its users ends the others",
}
_PROVIDED: Final = "{provided: false} to install it"


def _named(parts: PartialStack, name: str) -> bool:
    operators: Any = parts.raw.get("operators")
    return isinstance(operators, dict) and operators.get(name) is not None


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
                    problem=f"got it beside {OPERATOR}, which brings its own",
                    valid=f"allowed either {OPERATOR}, or {PLUGIN} and perhaps {EXPORTER}",
                    action="remove one of them",
                )
    elif _named(parts, EXPORTER) and not _named(parts, PLUGIN):
        yield ConfigIssue(
            path=f"operators.{EXPORTER}",
            problem=f"got it without {PLUGIN}",
            valid=f"allowed it with {PLUGIN}; {OPERATOR} brings its own",
            action=f"add {PLUGIN}, or name {OPERATOR} instead",
        )
    yield from _offered(parts)


def _offered(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Devices of nodes that the stack makes; whoever runs an existing cluster has seen to its own."""
    made = [
        (index, pool)
        for index, pool in parts.pools
        if _made_by_stack(pool) and pool.workload is Workload.GPU_TRAINING
    ]
    if parts.provider != "eks":
        return
    if made and not (_named(parts, OPERATOR) or _named(parts, PLUGIN)):
        yield ConfigIssue(
            path=f"operators.{OPERATOR}",
            problem="got nothing",
            valid=f"allowed {_PROVIDED}, or {PLUGIN}, for EKS' nodes do not offer their GPUs to pods",
            action="add it",
        )
    efa = [index for index, pool in made if pool.network is Network.EFA]
    if efa and not _named(parts, EFA_PLUGIN):
        yield ConfigIssue(
            path=f"operators.{EFA_PLUGIN}",
            problem=f"got nothing, with network: efa in nodePools[{efa[0]}]",
            valid=f"allowed {_PROVIDED}, for EKS' nodes do not offer their adapters to pods",
            action="add it",
        )


def check_gpu_driver(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require one source of the NVIDIA driver per node."""
    gpus: Any = parts.raw.get("gpus")
    if not isinstance(gpus, dict) or gpus.get("driver") != "operator":
        return
    if not _named(parts, OPERATOR):
        yield ConfigIssue(
            path="gpus.driver",
            problem=f"got 'operator' without {OPERATOR}",
            valid=f"allowed it with {OPERATOR}, which brings the driver",
            action=f"add operators.{OPERATOR}, or remove it",
        )
    made = [index for index, pool in parts.pools if _made_by_stack(pool)]
    if made:
        yield ConfigIssue(
            path="gpus.driver",
            problem=f"got 'operator' with nodePools[{made[0]}], whose machine image has NVIDIA's driver",
            valid="allowed image on EKS; a second driver would fight the first over the kernel's module",
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
                problem="got a pool that is not there, or has no GPUs",
                valid=f"allowed {one_of(names)}",
                action=did_you_mean(name, names, "name a GPU pool"),
            )
            continue
        if len(config.modes) != 1:
            yield ConfigIssue(
                path=path,
                problem="got "
                + (one_of(mode.value for mode in config.modes) if config.modes else "nothing"),
                valid="allowed one of mig, timeSlicing and mps",
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
            problem="got a pool whose nodes are karpenter",
            valid="allowed pools whose nodes are managed or existing, for Karpenter counts whole GPUs and "
            "would launch a node for every few shares",
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
                problem=f"got it without {OPERATOR} or {PLUGIN}",
                valid="allowed it with one of them, whose device plugin does it",
                action="add one of them to operators",
            )
    elif not _named(parts, OPERATOR):
        yield ConfigIssue(
            path=f"{path}.{mode.value}",
            problem=f"got it without {OPERATOR}",
            valid=f"allowed it with {OPERATOR}, which prepares the nodes for it",
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
            problem=f"got {shown(profile)} on {' and '.join(models)}",
            valid="allowed "
            + (", ".join(can) if can else "no profile that all of the pool's GPUs have"),
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
            problem=f"got a pool that production may use: {', '.join(production)}",
            valid="allowed pools of research teams, for production trains on whole GPUs",
            action=f"set borrowing: {{{pool.name}: 0}} for them, or use mig",
        )
    if len(here) > 1:
        yield ConfigIssue(
            path=f"{path}.{mode.value}",
            problem=f"got a pool of {', '.join(team.name for team in here)}",
            valid=f"allowed a pool of one team, for {_ONE_TEAM[mode]}",
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
                problem=f"got 'roce' on nodes that are {pool.nodes.value}",
                valid="allowed roce on nodes that are existing, for EC2 has EFA and no RoCE",
                action="set network: efa or tcp",
            )
        elif roce and "rdmaResource" not in _facts(parts, index):
            yield ConfigIssue(
                path=f"{path}.fabric.rdmaResource",
                problem="got nothing",
                valid="allowed with network: roce the resource by which pods get adapters, such as rdma/hca",
                action="add it",
            )
        if pool.fabric is None:
            continue
        if pool.nodes is not Nodes.EXISTING:
            yield ConfigIssue(
                path=f"{path}.fabric",
                problem=f"got facts of nodes that are {pool.nodes.value}",
                valid="allowed it on nodes that are existing; that of others is known",
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
                problem=f"got it with network: {pool.network.value}",
                valid="allowed it with network: roce",
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
                        problem=f"got {shown(key)}",
                        valid="allowed variables of your own, for those of the network follow from the pool",
                        action="remove it, and state what is known of the network in the pool's fabric",
                    )
