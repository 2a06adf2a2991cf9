"""What the stack says of itself: the ConfigMap that the platform leaves for commands on live stacks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.domain import naming
from ops.cluster import Cluster, ClusterError, Kind

NAMESPACE: Final = naming.VALIDATION_NAMESPACE
NAME: Final = naming.STACK_FACTS
KEY: Final = "stack.json"

CONFIG_MAPS: Final = Kind("v1", "configmaps", "ConfigMap")
GPU_TRAINING: Final = naming.GPU_TRAINING
SIMULATED: Final = "kwok"
"""Nodes on which pods only look as if they ran."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """One node pool as the stack's file has it."""

    name: str
    workload: str
    nodes: str
    """Where its nodes come from: existing, managed, karpenter, process or kwok."""
    capacity: str
    min: int
    max: int
    gpus_per_node: int
    sharing: str
    """How each of its GPUs is several devices: mig, timeSlicing or mps; empty: it is one."""
    instance_types: tuple[str, ...]
    allocatable: Mapping[str, int]
    """Devices that pods may have on each node, by resource."""

    @property
    def gpu(self) -> bool:
        """Whether it is there for training on GPUs."""
        return self.workload == GPU_TRAINING

    @property
    def simulated(self) -> bool:
        """Whether nothing really runs on its nodes."""
        return self.nodes == SIMULATED

    @property
    def no_gang_reason(self) -> str:
        """Why ranks on several of its nodes are never a gang; empty: they are one."""
        if self.sharing:
            return f"its GPUs are shared ({self.sharing}): ranks on parts of them are no gang"
        return "it has one node at most" if self.max < 2 else ""

    @property
    def subject(self) -> str:
        return f"pool {self.name}"


@dataclass(frozen=True, kw_only=True)
class Team:
    """One team."""

    name: str
    tier: str
    namespace: str
    queue: str
    """What its runs queue in; empty: nothing queues them."""

    @property
    def subject(self) -> str:
        return f"team {self.name}"


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What there must be."""

    name: str
    cluster: str
    scheduler: str
    pools: tuple[Pool, ...]
    teams: tuple[Team, ...]

    @property
    def subjects(self) -> set[str]:
        """Whatever a check of a pool or a team can be about."""
        return {pool.subject for pool in self.pools} | {team.subject for team in self.teams}

    def team(self, name: str) -> Team:
        """Raises ClusterError for a team that it does not have."""
        for team in self.teams:
            if team.name == name:
                return team
        known = ", ".join(team.name for team in self.teams)
        raise ClusterError(f"--team: got {name!r}; allowed {known}")

    def select_pools(self, names: tuple[str, ...]) -> tuple[Pool, ...]:
        """The pools of these names, all without names. Raises ClusterError for one that it lacks."""
        known = {pool.name: pool for pool in self.pools}
        if unknown := [name for name in names if name not in known]:
            raise ClusterError(f"--pool: got {unknown[0]!r}; allowed {', '.join(known)}")
        return tuple(pool for pool in self.pools if not names or pool.name in names)


def read(cluster: Cluster) -> Stack:
    """The stack of this cluster. Raises ClusterError where nothing describes it."""
    found = cluster.get(CONFIG_MAPS, NAME, NAMESPACE)
    if found is None:
        raise ClusterError(
            f"configmap/{NAME} -n {NAMESPACE}: not found; `validation` in the stack file makes it,"
            " then `pulumi up`"
        )
    try:
        return parse(found["data"][KEY])
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterError(
            f"configmap/{NAME} -n {NAMESPACE}: {KEY} cannot be read ({error!r}); `pulumi up` writes it"
            " anew"
        ) from None


def parse(text: str) -> Stack:
    """The stack of this JSON. Raises KeyError, TypeError or ValueError where it is not one."""
    found = json.loads(text)
    return Stack(
        name=found["stack"],
        cluster=found["cluster"],
        scheduler=found["scheduler"],
        pools=tuple(_pool(pool, found["expected"]) for pool in found["pools"]),
        teams=tuple(
            Team(name=t["name"], tier=t["tier"], namespace=t["namespace"], queue=t["queue"] or "")
            for t in found["teams"]
        ),
    )


def _pool(found: Mapping[str, Any], expected: Mapping[str, Any]) -> Pool:
    return Pool(
        name=found["name"],
        workload=found["workload"],
        nodes=found["nodes"],
        capacity=found["capacity"],
        min=int(found["min"]),
        max=int(found["max"]),
        gpus_per_node=int(found["gpusPerNode"]),
        sharing=found["sharing"] or "",
        instance_types=tuple(found["instanceTypes"]),
        allocatable=expected[found["name"]]["allocatable"],
    )
