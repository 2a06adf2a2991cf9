"""Network topology of nodes: the label levels by which Kueue packs gangs.

Kueue ignores nodes without the label of any level, so a pool's levels are those that all of its nodes have. See
docs/adr/04-capacity-and-quota.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from infra.domain.catalog import ec2
from infra.domain.pools import NodePool, Nodes


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Topology levels of some pools' nodes."""

    name: str
    """Name of Kueue's Topology."""
    network: tuple[str, ...]
    """Labels between zone and host, widest level first."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Labels of all levels, widest first."""
        return (naming.ZONE, *self.network, naming.HOSTNAME)


FLAT: Final = Topology(name="zone-host", network=())
RACKS: Final = Topology(name=naming.TOPOLOGY, network=(naming.RACK,))
EC2: Final = Topology(name="zone-network-host", network=ec2.TOPOLOGY_LABELS)


def pool_topology(pool: NodePool) -> Topology:
    if pool.nodes.simulated:
        return RACKS
    on_ec2 = pool.nodes in (Nodes.MANAGED, Nodes.KARPENTER)
    return EC2 if on_ec2 and ec2.TYPES_WITH_TOPOLOGY.issuperset(pool.instance_types) else FLAT


def gang_level(pools: Sequence[NodePool]) -> str:
    """Return the narrowest level above hosts that nodes of all these pools have."""
    first, *others = [pool_topology(pool).network for pool in pools]
    shared = [label for label in first if all(label in network for network in others)]
    return shared[-1] if shared else naming.ZONE
