"""How GPUs are offered to pods: the driver and sharing modes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import pydantic
from pydantic import Field

from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown
from infra.config.partial import Check, PartialStack
from infra.config.sections.node_pools import (
    PoolConfig,
    all_types_known,
    gpu_pool,
    read_pools,
)
from infra.config.sections.operators import OPERATOR, PLUGIN, made_by_stack
from infra.config.sections.teams.model import read_teams
from infra.config.types import DnsLabel, Int, Str, StrictModel
from infra.domain import catalog
from infra.domain.gpu_sharing import GpuSharing, SharingMode, instances, profiles
from infra.domain.pools import Nodes, Workload
from infra.domain.tier import TIERS
from infra.queueing import quotas
from infra.queueing.quotas import QueueTeam

MOST_SHARES: Final = 48
"""Clients of one MPS server on GPUs since Volta; more time slices do not help either."""


Shares = Annotated[Int, Field(ge=2, le=MOST_SHARES)]


class SharingConfig(StrictModel):
    """Exactly one mode of offering each GPU of a pool as several devices."""

    mig: Str | None = None
    """Profile of the instances that every GPU is cut into, such as 1g.10gb."""
    time_slicing: Shares | None = None
    """Pods that share one GPU by time-slicing; each sees all of its memory."""
    mps: Shares | None = None
    """Pods that share one GPU by MPS, each with an equal part of its memory and compute."""

    @property
    def modes(self) -> tuple[SharingMode, ...]:
        """Return the modes that are set."""
        named = self.model_dump(by_alias=True)
        return tuple(mode for mode in SharingMode if named[mode.value] is not None)

    def sharing(self, models: tuple[str, ...]) -> GpuSharing:
        """Return the sharing of a pool; a profile that the models lack counts as one share of a GPU."""
        if self.mig is not None:
            shares = instances(self.mig, models) or 1
            return GpuSharing(mode=SharingMode.MIG, shares=shares, profile=self.mig)
        if self.mps is not None:
            return GpuSharing(mode=SharingMode.MPS, shares=self.mps)
        return GpuSharing(mode=SharingMode.TIME_SLICING, shares=self.time_slicing or 1)


class GpusConfig(StrictModel):
    """How GPUs of real nodes become devices that pods can request."""

    driver: Literal["image", "operator"] = "image"
    """Who brings NVIDIA's driver and container toolkit: the nodes' machine image, as on EKS, or the GPU
    operator."""
    sharing: dict[DnsLabel, SharingConfig] = Field(default={})
    """Sharing mode by pool. Default of a pool: each device is a whole GPU."""


_ONE_TEAM: Final = {
    SharingMode.TIME_SLICING: "time-slicing isolates neither memory nor faults",
    SharingMode.MPS: "a fault of one MPS client ends the others",
}


def _sharing(stack: PartialStack) -> dict[str, SharingConfig]:
    """Return the valid entries; the others are reported already."""
    gpus: Any = stack.raw.get("gpus")
    entries = gpus.get("sharing") if isinstance(gpus, dict) else None
    found = {}
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        with contextlib.suppress(pydantic.ValidationError):
            found[str(name)] = SharingConfig.model_validate(entry)
    return found


def check_gpu_driver(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require one source of the NVIDIA driver per node."""
    gpus: Any = stack.raw.get("gpus")
    if not isinstance(gpus, dict) or gpus.get("driver") != "operator":
        return
    if not stack.has_operator(OPERATOR):
        yield ConfigIssue(
            path="gpus.driver",
            code="operator-required",
            problem=f"'operator' requires operators.{OPERATOR}",
            valid=f"{OPERATOR} installs the driver",
            action=f"add operators.{OPERATOR}, or remove gpus.driver",
        )
    made = [index for index, pool in read_pools(stack) if made_by_stack(pool)]
    if made:
        yield ConfigIssue(
            path="gpus.driver",
            code="driver-conflict",
            problem=f"'operator' conflicts with nodePools[{made[0]}], whose machine image "
            "includes the NVIDIA driver",
            valid="must be image on EKS: two drivers conflict over the kernel module",
            action="remove it",
        )


def check_gpu_sharing(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require one sharing mode per entry, supported by its pool; one team per shared pool."""
    for name, config in _sharing(stack).items():
        path = f"gpus.sharing.{name}"
        found = gpu_pool(stack, name)
        if found is None:
            names = [
                pool.name for _, pool in read_pools(stack) if pool.workload is Workload.GPU_TRAINING
            ]
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
        yield from _fits(stack, path, found[1], config)


def _fits(
    stack: PartialStack, path: str, pool: PoolConfig, config: SharingConfig
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
        yield from _who_does_it(stack, path, mode)
    if mode is SharingMode.MIG:
        yield from _profile(path, pool, str(config.mig))
    else:
        yield from _one_team(stack, path, pool, mode)


def _who_does_it(stack: PartialStack, path: str, mode: SharingMode) -> Iterator[ConfigIssue]:
    if mode is SharingMode.TIME_SLICING:
        if not (stack.has_operator(OPERATOR) or stack.has_operator(PLUGIN)):
            yield ConfigIssue(
                path=f"{path}.{mode.value}",
                code="operator-required",
                problem="no operator provides time-slicing",
                valid=f"requires operators.{OPERATOR} or operators.{PLUGIN}, whose device "
                "plugin implements it",
                action="add one of them to operators",
            )
    elif not stack.has_operator(OPERATOR):
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
        return  # Reported by another check.
    models = pool.pool().gpu_models
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
    stack: PartialStack, path: str, pool: PoolConfig, mode: SharingMode
) -> Iterator[ConfigIssue]:
    """Require one team in the pool, and none of tier production."""
    if not all_types_known(stack):
        return
    here = [
        team
        for _, team in read_teams(stack)
        if quotas.usable(
            QueueTeam(
                name=team.name,
                tier=team.tier,
                guaranteed=team.guaranteed,
                borrowing=team.borrowing,
                on_demand_usd_per_hour=team.on_demand_usd_per_hour,
            ),
            [pool.pool()],
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


CHECKS: Final[tuple[Check, ...]] = (
    check_gpu_driver,
    check_gpu_sharing,
)
