"""EFA: which network interfaces a node of a pool gets, for both kinds of node pools."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from infra.domain.pools import Network, NodePool


class InterfaceType(StrEnum):
    """What EC2 puts on a network card."""

    ENA = "interface"
    """IP traffic."""
    EFA_ONLY = "efa-only"
    """RDMA alone: it takes no IP address, of which 32 on each p5 node would empty a subnet."""


@dataclass(frozen=True, kw_only=True)
class Interface:
    """One network interface of a node."""

    card: int
    """Index of the network card."""
    device: int
    """Index of the interface on its card."""
    type: InterfaceType


PRIMARY = Interface(card=0, device=0, type=InterfaceType.ENA)
"""Carries the node's address and its pods'."""


def interfaces(pool: NodePool) -> tuple[Interface, ...]:
    """All interfaces of a node, the primary one first; only that one without EFA.

    The layout that EC2's guide recommends for multi-card types: IP on card 0, and on every card that can
    do EFA an EFA-only interface, which is the second device of card 0 and the only one of others.
    Types of a mixed pool share one template, so the cards are those that all of them have.
    """
    if pool.network is not Network.EFA:
        return (PRIMARY,)
    common = set.intersection(*(set(t.efa_card_indexes) for t in pool.types))
    return (
        PRIMARY,
        *(
            Interface(card=card, device=0 if card else 1, type=InterfaceType.EFA_ONLY)
            for card in sorted(common)
        ),
    )
