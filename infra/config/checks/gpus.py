"""GPUs: one driver, one device plugin, shares of a GPU only where they hurt nobody."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import pydantic

from infra.config.checks.parts import Parts
from infra.config.gpus_model import SharingConfig
from infra.config.mistakes import Mistake, did_you_mean, one_of, shown
from infra.config.model import PoolConfig
from infra.domain import catalog, fabric
from infra.domain.gpu_sharing import SharingMode, instances, profiles
from infra.domain.pools import Network, Nodes, Workload
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


def _named(parts: Parts, name: str) -> bool:
    operators: Any = parts.raw.get("operators")
    return isinstance(operators, dict) and operators.get(name) is not None


def _made_by_stack(pool: PoolConfig) -> bool:
    return pool.nodes in (Nodes.MANAGED, Nodes.KARPENTER)


def _sharing(parts: Parts) -> dict[str, SharingConfig]:
    """Entries that can be read; what is wrong with others is told already."""
    gpus: Any = parts.raw.get("gpus")
    entries = gpus.get("sharing") if isinstance(gpus, dict) else None
    found = {}
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        with contextlib.suppress(pydantic.ValidationError):
            found[str(name)] = SharingConfig.model_validate(entry)
    return found


def operators(parts: Parts) -> Iterator[Mistake]:
    """One of the two that offer GPUs, and what goes with it; on EKS nothing offers them by itself."""
    if _named(parts, OPERATOR):
        for name in (PLUGIN, EXPORTER):
            if _named(parts, name):
                yield Mistake(
                    path=f"operators.{name}",
                    got=f"it beside {OPERATOR}, which brings its own",
                    allowed=f"either {OPERATOR}, or {PLUGIN} and perhaps {EXPORTER}",
                    remedy="remove one of them",
                )
    elif _named(parts, EXPORTER) and not _named(parts, PLUGIN):
        yield Mistake(
            path=f"operators.{EXPORTER}",
            got=f"it without {PLUGIN}",
            allowed=f"it with {PLUGIN}; {OPERATOR} brings its own",
            remedy=f"add {PLUGIN}, or name {OPERATOR} instead",
        )
    yield from _offered(parts)


def _offered(parts: Parts) -> Iterator[Mistake]:
    """Devices of nodes that the stack makes; whoever runs an existing cluster has seen to its own."""
    made = [
        (index, pool)
        for index, pool in parts.pools
        if _made_by_stack(pool) and pool.workload is Workload.GPU_TRAINING
    ]
    if parts.provider != "eks":
        return
    if made and not (_named(parts, OPERATOR) or _named(parts, PLUGIN)):
        yield Mistake(
            path=f"operators.{OPERATOR}",
            got="nothing",
            allowed=f"{_PROVIDED}, or {PLUGIN}, for EKS' nodes do not offer their GPUs to pods",
            remedy="add it",
        )
    efa = [index for index, pool in made if pool.network is Network.EFA]
    if efa and not _named(parts, EFA_PLUGIN):
        yield Mistake(
            path=f"operators.{EFA_PLUGIN}",
            got=f"nothing, with network: efa in nodePools[{efa[0]}]",
            allowed=f"{_PROVIDED}, for EKS' nodes do not offer their adapters to pods",
            remedy="add it",
        )


def driver(parts: Parts) -> Iterator[Mistake]:
    """One driver per node: two would fight over the kernel's module."""
    gpus: Any = parts.raw.get("gpus")
    if not isinstance(gpus, dict) or gpus.get("driver") != "operator":
        return
    if not _named(parts, OPERATOR):
        yield Mistake(
            path="gpus.driver",
            got=f"'operator' without {OPERATOR}",
            allowed=f"it with {OPERATOR}, which brings the driver",
            remedy=f"add operators.{OPERATOR}, or remove it",
        )
    made = [index for index, pool in parts.pools if _made_by_stack(pool)]
    if made:
        yield Mistake(
            path="gpus.driver",
            got=f"'operator' with nodePools[{made[0]}], whose machine image has NVIDIA's driver",
            allowed="image on EKS; a second driver would fight the first over the kernel's module",
            remedy="remove it",
        )


def sharing(parts: Parts) -> Iterator[Mistake]:
    """Each entry is one way for one pool that can have it, and nobody is put beside strangers."""
    for name, config in _sharing(parts).items():
        path = f"gpus.sharing.{name}"
        found = parts.gpu_pool(name)
        if found is None:
            names = [pool.name for _, pool in parts.pools if pool.workload is Workload.GPU_TRAINING]
            yield Mistake(
                path=path,
                got="a pool that is not there, or has no GPUs",
                allowed=one_of(names),
                remedy=did_you_mean(name, names, "name a GPU pool"),
            )
            continue
        if len(config.modes) != 1:
            yield Mistake(
                path=path,
                got=one_of(mode.value for mode in config.modes) if config.modes else "nothing",
                allowed="one of mig, timeSlicing and mps",
                remedy="keep one of them" if config.modes else "add one, or remove the pool",
            )
            continue
        yield from _fits(parts, path, found[1], config)


def _fits(parts: Parts, path: str, pool: PoolConfig, config: SharingConfig) -> Iterator[Mistake]:
    mode = config.modes[0]
    if pool.nodes is Nodes.KARPENTER:
        yield Mistake(
            path=path,
            got="a pool whose nodes are karpenter",
            allowed="pools whose nodes are managed or existing, for Karpenter counts whole GPUs and "
            "would launch a node for every few shares",
            remedy="set nodes: managed, or remove it",
        )
    if not pool.nodes.simulated:
        yield from _who_does_it(parts, path, mode)
    if mode is SharingMode.MIG:
        yield from _profile(path, pool, str(config.mig))
    else:
        yield from _one_team(parts, path, pool, mode)


def _who_does_it(parts: Parts, path: str, mode: SharingMode) -> Iterator[Mistake]:
    if mode is SharingMode.TIME_SLICING:
        if not (_named(parts, OPERATOR) or _named(parts, PLUGIN)):
            yield Mistake(
                path=f"{path}.{mode.value}",
                got=f"it without {OPERATOR} or {PLUGIN}",
                allowed="it with one of them, whose device plugin does it",
                remedy="add one of them to operators",
            )
    elif not _named(parts, OPERATOR):
        yield Mistake(
            path=f"{path}.{mode.value}",
            got=f"it without {OPERATOR}",
            allowed=f"it with {OPERATOR}, which prepares the nodes for it",
            remedy=f"add operators.{OPERATOR}, or use timeSlicing",
        )


def _profile(path: str, pool: PoolConfig, profile: str) -> Iterator[Mistake]:
    known = catalog.load().types
    if any(name not in known for name in pool.instance_types):
        return  # A mistake of its own.
    models = pool.pool("").gpu_models
    if instances(profile, models) is None:
        can = profiles(models)
        yield Mistake(
            path=f"{path}.mig",
            got=f"{shown(profile)} on {' and '.join(models)}",
            allowed=", ".join(can) if can else "no profile that all of the pool's GPUs have",
            remedy=did_you_mean(profile, can, "choose one" if can else "remove it"),
        )


def _one_team(parts: Parts, path: str, pool: PoolConfig, mode: SharingMode) -> Iterator[Mistake]:
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
    production = [team.name for team in here if team.tier == "production"]
    if production:
        yield Mistake(
            path=f"{path}.{mode.value}",
            got=f"a pool that production may use: {', '.join(production)}",
            allowed="pools of research teams, for production trains on whole GPUs",
            remedy=f"set borrowing: {{{pool.name}: 0}} for them, or use mig",
        )
    if len(here) > 1:
        yield Mistake(
            path=f"{path}.{mode.value}",
            got=f"a pool of {', '.join(team.name for team in here)}",
            allowed=f"a pool of one team, for {_ONE_TEAM[mode]}",
            remedy=f"set borrowing: {{{pool.name}: 0}} for the others, or use mig",
        )


def fabrics(parts: Parts) -> Iterator[Mistake]:
    """RoCE is on nodes that exist, with its adapters named; nothing else is said of known networks."""
    for index, pool in parts.pools:
        path = f"nodePools[{index}]"
        roce = pool.network is Network.ROCE
        if roce and pool.nodes is not Nodes.EXISTING:
            yield Mistake(
                path=f"{path}.network",
                got=f"'roce' on nodes that are {pool.nodes.value}",
                allowed="roce on nodes that are existing, for EC2 has EFA and no RoCE",
                remedy="set network: efa or tcp",
            )
        elif roce and "rdmaResource" not in _facts(parts, index):
            yield Mistake(
                path=f"{path}.fabric.rdmaResource",
                got="nothing",
                allowed="with network: roce the resource by which pods get adapters, such as rdma/hca",
                remedy="add it",
            )
        if pool.fabric is None:
            continue
        if pool.nodes is not Nodes.EXISTING:
            yield Mistake(
                path=f"{path}.fabric",
                got=f"facts of nodes that are {pool.nodes.value}",
                allowed="it on nodes that are existing; that of others is known",
                remedy="remove it",
            )
        elif not roce:
            yield from _only_roce(path, pool)


def _facts(parts: Parts, index: int) -> dict[str, Any]:
    """What the file itself says of a pool's network, well-formed or not."""
    named = parts.raw["nodePools"][index].get("fabric")
    return named if isinstance(named, dict) else {}


def _only_roce(path: str, pool: PoolConfig) -> Iterator[Mistake]:
    given = pool.fabric.model_dump(by_alias=True) if pool.fabric else {}
    for key in ("rdmaResource", "adapters", "gidIndex"):
        if given.get(key) not in (None, ()):
            yield Mistake(
                path=f"{path}.fabric.{key}",
                got=f"it with network: {pool.network.value}",
                allowed="it with network: roce",
                remedy="remove it, or set network: roce",
            )


def network_variables(parts: Parts) -> Iterator[Mistake]:
    """NCCL's settings follow from a pool's network; a secret that brings another would contradict it."""
    for number, team in parts.teams:
        for place, secret in enumerate(team.secrets):
            for index, key in enumerate(secret.env):
                if fabric.decides(key):
                    yield Mistake(
                        path=f"teams[{number}].secrets[{place}].env[{index}]",
                        got=shown(key),
                        allowed="variables of your own, for those of the network follow from the pool",
                        remedy="remove it, and state what is known of the network in the pool's fabric",
                    )
