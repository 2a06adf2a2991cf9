"""What checks look at: the parts of a stack file, as far as they can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.config.aws_model import (
    AwsConfig,
    EksClusterConfig,
    ExistingNetworkConfig,
    MadeNetworkConfig,
)
from infra.config.model import PoolConfig, StorageConfig, TeamConfig
from infra.domain import catalog
from infra.domain.pools import Workload

UNKNOWN: Final = "unknown"
"""Stands for a name that is missing or malformed: no check complains of it."""

UNNAMED: Final = "unnamed-"
"""Prefix of the names of pools and teams whose own are missing or malformed."""

UNKNOWN_ACCOUNT: Final = "000000000000"
"""Stands for such an account."""


@dataclass(frozen=True, kw_only=True)
class PartialStack:
    """The parts of a stack file with their places; malformed fields are replaced by neutral ones."""

    pools: Sequence[tuple[int, PoolConfig]]
    teams: Sequence[tuple[int, TeamConfig]]
    storage: StorageConfig | None
    eks: EksClusterConfig | None
    aws: AwsConfig | None
    network: MadeNetworkConfig | ExistingNetworkConfig | None
    raw: dict[str, Any]

    @property
    def provider(self) -> str:
        """`existing`, `eks`, or what else the file says."""
        cluster = self.raw.get("cluster")
        return str(cluster.get("provider")) if isinstance(cluster, dict) else UNKNOWN

    @property
    def operators(self) -> dict[str, Any] | None:
        """The section `operators`; None where it is missing or invalid, which is reported."""
        found = self.raw.get("operators")
        return found if isinstance(found, dict) else None

    @property
    def pools_named(self) -> bool:
        """Whether every pool has a valid name; else references to pools are not checked."""
        return bool(self.pools) and not any(p.name.startswith(UNNAMED) for _, p in self.pools)

    @property
    def teams_named(self) -> bool:
        """Whether every team has a valid name; else references to teams are not checked."""
        return bool(self.teams) and not any(t.name.startswith(UNNAMED) for _, t in self.teams)

    @property
    def zones(self) -> tuple[str, ...]:
        """Zones in which the network has subnets; none when that is not known."""
        return self.network.zone_names if self.network else ()

    @property
    def pool_names(self) -> frozenset[str]:
        """Every pool that the file names."""
        return frozenset(pool.name for _, pool in self.pools)

    def gpu_pool(self, name: str) -> tuple[int, PoolConfig] | None:
        """The GPU pool of a name and its place; of two with one name, which is a mistake, the first."""
        for index, pool in self.pools:
            if pool.name == name:
                return (index, pool) if pool.workload is Workload.GPU_TRAINING else None
        return None

    @property
    def all_known(self) -> bool:
        """Whether there are pools, and the catalog knows all their types."""
        known = catalog.load().types
        return bool(self.pools) and all(
            name in known for _, pool in self.pools for name in pool.instance_types
        )
