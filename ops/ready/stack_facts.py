"""Read the ConfigMap in which the platform describes the stack."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import pydantic
from pydantic.alias_generators import to_camel

from infra.domain import naming
from ops.cluster import Cluster, ClusterError
from ops.collect import CONFIG_MAPS

NAMESPACE: Final = naming.VALIDATION_NAMESPACE
NAME: Final = naming.STACK_FACTS
KEY: Final = "stack.json"

GPU_TRAINING: Final = naming.GPU_TRAINING
SIMULATED: Final = "kwok"
"""Node provider of simulated nodes, which run no containers."""
WITHOUT_HARDWARE: Final = (SIMULATED, "process")
"""Node providers whose GPUs are only numbers in a node's status."""


class _Published(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, alias_generator=to_camel)


class Pool(_Published):
    """One node pool of the stack file."""

    name: str
    workload: str
    nodes: str
    """Provider of its nodes: existing, managed, karpenter, process or kwok."""
    capacity: str
    min: int
    max: int
    gpus_per_node: int
    sharing: str | None
    """GPU sharing mode: mig, timeSlicing or mps."""
    instance_types: tuple[str, ...]
    allocatable: Mapping[str, int]
    """Expected allocatable devices per node, by resource."""
    taint: str | None = None
    """Taint of its GPU nodes as KEY=VALUE; None: none, or the stack was deployed by an older release."""

    @property
    def gpu(self) -> bool:
        return self.workload == GPU_TRAINING

    @property
    def simulated(self) -> bool:
        return self.nodes == SIMULATED

    @property
    def hardware(self) -> bool:
        """Whether its nodes are machines, whose GPUs a check can prove."""
        return self.nodes not in WITHOUT_HARDWARE

    @property
    def no_gang_reason(self) -> str:
        """Why gangs cannot span its nodes; empty if they can."""
        if self.sharing:
            return f"its GPUs are shared ({self.sharing}), which does not support gangs"
        return "it has at most one node" if self.max < 2 else ""

    @property
    def subject(self) -> str:
        return f"pool {self.name}"


class Team(_Published):
    name: str
    tier: str
    namespace: str

    @property
    def subject(self) -> str:
        return f"team {self.name}"


class Stack(_Published):
    name: str = pydantic.Field(alias="stack")
    cluster: str
    scheduler: str
    pools: tuple[Pool, ...]
    teams: tuple[Team, ...]

    @property
    def subjects(self) -> set[str]:
        """Subjects of all its pools and teams."""
        return {pool.subject for pool in self.pools} | {team.subject for team in self.teams}

    def team(self, name: str) -> Team:
        """Return a team by name. Raises ClusterError if unknown."""
        for team in self.teams:
            if team.name == name:
                return team
        known = ", ".join(team.name for team in self.teams)
        raise ClusterError(f"--team: got {name!r}; expected one of {known}")

    def select_pools(self, names: tuple[str, ...]) -> tuple[Pool, ...]:
        """Return the named pools, or all if none are named. Raises ClusterError for an unknown name."""
        known = {pool.name: pool for pool in self.pools}
        if unknown := [name for name in names if name not in known]:
            raise ClusterError(f"--pool: got {unknown[0]!r}; expected one of {', '.join(known)}")
        return tuple(pool for pool in self.pools if not names or pool.name in names)


def read(cluster: Cluster) -> Stack:
    """Read the stack of this cluster. Raises ClusterError if there is no description."""
    found = cluster.get(CONFIG_MAPS, NAME, NAMESPACE)
    if found is None:
        raise ClusterError(
            f"configmap/{NAME} -n {NAMESPACE}: not found; add `validation` to the stack file and run"
            " `pulumi up`"
        )
    try:
        return parse(found["data"][KEY])
    except (KeyError, TypeError, ValueError) as error:
        why = error.errors()[0]["loc"] if isinstance(error, pydantic.ValidationError) else error
        raise ClusterError(
            f"configmap/{NAME} -n {NAMESPACE}: {KEY} cannot be parsed ({why!r}); run `pulumi up` to"
            " rewrite it"
        ) from None


def parse(text: str) -> Stack:
    """Parse the stack's JSON. Raises KeyError, TypeError or ValueError."""
    found = json.loads(text)
    for pool in found["pools"]:
        pool["allocatable"] = found["expected"][pool["name"]]["allocatable"]
    return Stack.model_validate(found)
