"""GPUs: one source of the driver, and sharing that pools, operators and teams support."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.config.model import StackConfig
from infra.config.rules.operators import DEVICE_PLUGIN, GPU_OPERATOR
from infra.domain.gpu_sharing import SharingMode, instances, profiles
from infra.domain.pools import NodePool, Nodes, Workload
from infra.domain.tier import TIERS
from infra.queueing import quotas
from infra.sections.errors import ConfigIssue, did_you_mean, issue, one_of, shown
from infra.sections.gpus import SharingConfig

_ONE_TEAM: Final = {
    SharingMode.TIME_SLICING: "time-slicing isolates neither memory nor faults",
    SharingMode.MPS: "a fault of one MPS client ends the others",
}


def check_gpu_driver(stack: StackConfig) -> Iterator[ConfigIssue]:
    if stack.gpus.driver != "operator":
        return
    if GPU_OPERATOR not in stack.operators.present():
        yield issue(
            "operator-required",
            "gpus.driver",
            f"'operator' requires operators.{GPU_OPERATOR}",
            f"{GPU_OPERATOR} installs the driver",
            f"add operators.{GPU_OPERATOR}, or remove gpus.driver",
        )
    made = [
        i for i, pool in enumerate(stack.pools) if pool.nodes in (Nodes.MANAGED, Nodes.KARPENTER)
    ]
    if made:
        yield issue(
            "driver-conflict",
            "gpus.driver",
            f"'operator' conflicts with nodePools[{made[0]}], whose machine image includes the "
            "NVIDIA driver",
            "must be image on EKS: two drivers conflict over the kernel module",
            "remove it",
        )


def check_gpu_sharing(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require one sharing mode per entry, supported by its pool; one team per shared pool."""
    pools = {pool.name: pool for pool in stack.pools if pool.workload is Workload.GPU_TRAINING}
    for name, config in stack.gpus.sharing.items():
        path = f"gpus.sharing.{name}"
        if name not in pools:
            yield issue(
                "unknown-name",
                path,
                f"{shown(name)} is not a GPU pool",
                f"must be one of {one_of(pools)}",
                did_you_mean(name, pools, "name a GPU pool"),
            )
        elif len(config.modes) != 1:
            named = " and ".join(mode.value for mode in config.modes)
            yield issue(
                "sharing-mode",
                path,
                f"{named + ' are' if named else 'no mode is'} set",
                "exactly one of mig, timeSlicing and mps is required",
                f"{'keep one of them' if named else 'add one, or remove the pool'}",
            )
        else:
            yield from _check_pool(stack, path, pools[name], config)


def _check_pool(
    stack: StackConfig, path: str, pool: NodePool, config: SharingConfig
) -> Iterator[ConfigIssue]:
    [mode] = config.modes
    if pool.nodes is Nodes.KARPENTER:
        yield issue(
            "sharing-on-karpenter",
            path,
            "the pool's nodes are karpenter",
            "must be managed or existing: Karpenter counts whole GPUs and would launch a node "
            "per few shares",
            "set nodes: managed, or remove it",
        )
    if not pool.nodes.simulated:
        yield from _check_operator(stack, f"{path}.{mode.value}", mode)
    if mode is not SharingMode.MIG:
        yield from _check_teams(stack, f"{path}.{mode.value}", pool, mode)
    elif instances(str(config.mig), pool.gpu_models) is None:
        can = profiles(pool.gpu_models)
        valid = (
            f"must be one of {', '.join(can)}"
            if can
            else "the pool's GPUs have no profile in common"
        )
        yield issue(
            "mig-profile",
            f"{path}.mig",
            f"{shown(config.mig)} is not a profile of {' and '.join(pool.gpu_models)}",
            f"{valid}",
            did_you_mean(str(config.mig), can, "choose one" if can else "remove it"),
        )


def _check_operator(stack: StackConfig, path: str, mode: SharingMode) -> Iterator[ConfigIssue]:
    present = stack.operators.present()
    if mode is SharingMode.TIME_SLICING and not {GPU_OPERATOR, DEVICE_PLUGIN} & set(present):
        yield issue(
            "operator-required",
            path,
            "no operator provides time-slicing",
            f"requires operators.{GPU_OPERATOR} or operators.{DEVICE_PLUGIN}, whose device plugin "
            "implements it",
            "add one of them to operators",
        )
    elif mode is not SharingMode.TIME_SLICING and GPU_OPERATOR not in present:
        yield issue(
            "operator-required",
            path,
            f"operators.{GPU_OPERATOR} is missing",
            f"requires operators.{GPU_OPERATOR}, which prepares the nodes",
            f"add operators.{GPU_OPERATOR}, or use timeSlicing",
        )


def _check_teams(
    stack: StackConfig, path: str, pool: NodePool, mode: SharingMode
) -> Iterator[ConfigIssue]:
    """Require one team in the pool, and none of tier production."""
    here = [team for team in stack.teams if quotas.usable(team, [pool])]
    production = [team.name for team in here if not TIERS[team.tier].shares_gpus]
    if production:
        yield issue(
            "sharing-with-production",
            path,
            f"production teams may use the pool: {', '.join(production)}",
            "must be a pool of research teams only: production trains on whole GPUs",
            f"set borrowing: {{{pool.name}: 0}} for them, or use mig",
        )
    if len(here) > 1:
        yield issue(
            "sharing-across-teams",
            path,
            f"several teams may use the pool: {', '.join(team.name for team in here)}",
            f"must be a pool of one team: {_ONE_TEAM[mode]}",
            f"set borrowing: {{{pool.name}: 0}} for the others, or use mig",
        )
