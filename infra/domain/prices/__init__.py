"""Prices of nodes and node pools: the one model that caps, advice, rules, budgets and reports use.

A node is priced by how it was bought, its instance type and its region. Prices are the catalog's
(`infra/domain/catalog.yaml`); `infra/domain/prices/services.py` has those of everything else. The policy pack
reads from resources how nodes are bought, and what was paid for reservations from the Platform record.

Rules that hold everywhere:
- A spot price that is not known counts as the on-demand price, which it never exceeds.
- A pool has a price only if all of its types have one: the price of its most expensive node.
- A reserved node costs what the stack file says was paid (`reservation.usdPerNodeHour`), else the on-demand price,
  and costs it whether it runs or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from infra.domain import catalog, naming
from infra.domain.catalog import ec2
from infra.domain.pools import Capacity, Fallback, NodePool, Nodes, ReservationKind

HOURS_PER_MONTH: Final = 730.0
"""Hours of the month that prices per month refer to, as in AWS's own price pages."""


class Purchase(StrEnum):
    """How one node was bought. Its pool's capacity type only says how the pool prefers to buy."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    RESERVED = "reserved"


PURCHASE_LABELS: Final[Mapping[str, Mapping[str, Purchase]]] = {
    naming.CAPACITY: {"spot": Purchase.SPOT, "on-demand": Purchase.ON_DEMAND},
    naming.EKS_CAPACITY: {
        "SPOT": Purchase.SPOT,
        "ON_DEMAND": Purchase.ON_DEMAND,
        "CAPACITY_BLOCK": Purchase.RESERVED,
    },
    naming.KARPENTER_CAPACITY: {
        "spot": Purchase.SPOT,
        "on-demand": Purchase.ON_DEMAND,
        "reserved": Purchase.RESERVED,
    },
}
"""Node labels that say how a node was bought, the most reliable one last."""


def purchase_of(labels: Mapping[str, str], pool: NodePool | None = None) -> Purchase | None:
    """Return how a node was bought, by its labels; None if they do not say.

    All nodes of a pool with a reservation are reserved: managed node groups label those of an On-Demand Capacity
    Reservation as on-demand.
    """
    if pool is not None and pool.reservation:
        return Purchase.RESERVED
    found: Purchase | None = None
    for key, values in PURCHASE_LABELS.items():
        found = values.get(labels.get(key, ""), found)
    return found


def usd_per_hour(
    instance_type: str, purchase: Purchase, region: str = catalog.DEFAULT_REGION
) -> float | None:
    """Return the price of one node; None: unknown type or price."""
    known = catalog.load().types.get(instance_type)
    price = known.prices.get(region) if known else None
    if price is None:
        return None
    if purchase is Purchase.SPOT and price.spot_usd_hour is not None:
        return price.spot_usd_hour
    return price.on_demand_usd_hour


def node_usd_per_hour(labels: Mapping[str, str], pool: NodePool | None = None) -> float | None:
    """Return the price of a node by its labels: purchase, instance type, and region of its zone.

    None: the labels do not say, or the price is unknown. `pool`: of the node, for what was paid for a reservation.
    """
    purchase = purchase_of(labels, pool)
    name = labels.get(naming.INSTANCE_TYPE, "")
    if purchase is None:
        return None
    if purchase is Purchase.RESERVED and pool is not None:
        return pool_price(pool, purchase, name)
    region = ec2.region_of_zone(labels.get(naming.ZONE, ""))
    return usd_per_hour(name, purchase, region or catalog.DEFAULT_REGION)


def purchases(pool: NodePool) -> tuple[Purchase, ...]:
    """Return how a pool's nodes may be bought, preferred first."""
    if pool.reservation:
        return (Purchase.RESERVED,)
    if pool.capacity is Capacity.ON_DEMAND:
        return (Purchase.ON_DEMAND,)
    falls_back = pool.fallback is Fallback.ON_DEMAND
    return (Purchase.SPOT, Purchase.ON_DEMAND) if falls_back else (Purchase.SPOT,)


def pool_price(pool: NodePool, purchase: Purchase, instance_type: str) -> float | None:
    """Return the USD per hour of a node of the pool that is bought this way; None: not known."""
    if purchase is Purchase.RESERVED and pool.reservation and pool.reservation.usd_per_node_hour:
        return pool.reservation.usd_per_node_hour
    return usd_per_hour(instance_type, purchase, pool.region)


def per_node(pool: NodePool, *bought: Purchase) -> float | None:
    """Return the USD per hour of the pool's most expensive node; None: the price of a type is not known.

    `bought`: consider these purchases only; default: all that the pool may make. Caps and budgets use the default.
    """
    found = [
        pool_price(pool, purchase, name)
        for purchase in bought or purchases(pool)
        for name in pool.instance_types
    ]
    known = [usd for usd in found if usd is not None]
    return max(known) if known and len(known) == len(found) else None


def paid_on_demand(pool: NodePool) -> bool:
    """Whether nodes of the pool may be paid per hour on demand, which `onDemandUsdPerHour` of a team limits."""
    return Purchase.ON_DEMAND in purchases(pool)


def committed_nodes(pool: NodePool) -> int:
    """Return the nodes that are paid for while nothing runs: its minimum, or all that are reserved."""
    return pool.max if pool.reservation else pool.min


@dataclass(frozen=True, kw_only=True)
class Hourly:
    """USD per hour of nodes; None: a price is not known."""

    now: float | None
    """Of the nodes that are there, and of those reserved."""
    at_max: float | None
    """With all nodes that the pool may have, bought the most expensive way that it may buy."""
    idle: float | None
    """While nothing runs."""
    at_max_preferred: float | None
    """As `at_max`, bought the preferred way: of spot pools that fall back, on spot."""

    @property
    def idle_per_month(self) -> float | None:
        """USD per month while nothing runs."""
        return None if self.idle is None else self.idle * HOURS_PER_MONTH


def hourly(pool: NodePool, nodes: int | None = None) -> Hourly:
    """Return what a pool costs per hour.

    `nodes`: those that are there, counted as bought the preferred way; default: its minimum. Price the nodes of a
    live cluster with `node_usd_per_hour` instead.
    """
    preferred = per_node(pool, purchases(pool)[0])
    committed = committed_nodes(pool)
    there = max(pool.min if nodes is None else nodes, committed)
    return Hourly(
        now=_times(there, preferred),
        at_max=_times(pool.max, per_node(pool)),
        idle=_times(committed, preferred),
        at_max_preferred=_times(pool.max, preferred),
    )


def _times(nodes: int, usd: float | None) -> float | None:
    return 0.0 if nodes == 0 else None if usd is None else nodes * usd


def total(parts: Iterable[float | None]) -> float | None:
    """Return the sum; None if a part is not known."""
    found = list(parts)
    known = [usd for usd in found if usd is not None]
    return math.fsum(known) if len(known) == len(found) else None


def total_hourly(pools: Iterable[NodePool]) -> Hourly:
    each = [hourly(pool) for pool in pools]
    return Hourly(
        now=total(one.now for one in each),
        at_max=total(one.at_max for one in each),
        idle=total(one.idle for one in each),
        at_max_preferred=total(one.at_max_preferred for one in each),
    )


@dataclass(frozen=True, kw_only=True)
class NodePrice:
    instance_type: str
    purchase: Purchase
    usd_per_hour: float


def price_list(pools: Iterable[NodePool]) -> tuple[NodePrice, ...]:
    """Return the known prices of all types of the pools, spot and on-demand, and of what is reserved.

    Where pools paid differently for reservations of the same type, the highest price.
    """
    found: dict[tuple[str, Purchase], float] = {}
    for pool in pools:
        ways = {Purchase.ON_DEMAND, Purchase.SPOT, *purchases(pool)}
        for name in pool.instance_types:
            for purchase in ways:
                usd = pool_price(pool, purchase, name)
                if usd is not None:
                    found[name, purchase] = max(usd, found.get((name, purchase), 0.0))
    return tuple(
        NodePrice(instance_type=name, purchase=purchase, usd_per_hour=usd)
        for (name, purchase), usd in sorted(found.items())
    )


def dated(region: str, instance_types: Iterable[str]) -> str:
    """Return the date of a region's prices, and which of these types have one that was only remembered."""
    known = catalog.load().regions.get(region)
    if known is None:
        return f"not in the catalog for {region}"
    found = sorted({*instance_types} & {*known.remembered})
    return f"of {known.date}" + (f", only remembered: {', '.join(found)}" if found else "")


def node_price_date(labels: Mapping[str, str]) -> str:
    """Return the date of a node's price, and whether it was only remembered; empty where it has no list price."""
    if node_usd_per_hour(labels) is None:
        return ""
    region = ec2.region_of_zone(labels.get(naming.ZONE, "")) or catalog.DEFAULT_REGION
    return dated(region, [labels[naming.INSTANCE_TYPE]])


class Ec2Quota(StrEnum):
    """Codes of EC2's service quotas, in vCPUs, that nodes count against. See docs/aws/bootstrap.md."""

    ON_DEMAND_P = "L-417A185B"
    ON_DEMAND_G = "L-DB2E81BA"
    ON_DEMAND_STANDARD = "L-1216C47A"
    SPOT_P = "L-7212CCBC"
    """P2, P3 and P4."""
    SPOT_P5 = "L-C4BD4855"
    """P5; newer ones are counted here, too, which was never compared with an account."""
    SPOT_G = "L-3819A6DF"
    SPOT_STANDARD = "L-34B43A08"


def ec2_quotas(pools: Iterable[NodePool]) -> dict[Ec2Quota, int]:
    """Return the vCPUs that the pools need of each EC2 quota at their maximum sizes.

    A spot pool that falls back to on-demand needs both. Capacity blocks need none; On-Demand Capacity Reservations
    count as on-demand.
    """
    found: dict[Ec2Quota, int] = {}
    for pool in pools:
        block = pool.reservation and pool.reservation.kind is ReservationKind.CAPACITY_BLOCK
        if block or pool.nodes not in (Nodes.MANAGED, Nodes.KARPENTER):
            continue
        for quota, vcpu in _quotas_of_node(pool).items():
            found[quota] = found.get(quota, 0) + vcpu * pool.max
    return {quota: found[quota] for quota in Ec2Quota if quota in found}


def _quotas_of_node(pool: NodePool) -> dict[Ec2Quota, int]:
    """Return the vCPUs of a node by quota: of the pool's largest type that counts against it."""
    found: dict[Ec2Quota, int] = {}
    for purchase in purchases(pool):
        for known in pool.types:
            quota = _quota(known.name, spot=purchase is Purchase.SPOT)
            found[quota] = max(found.get(quota, 0), known.vcpu)
    return found


def _quota(instance_type: str, *, spot: bool) -> Ec2Quota:
    family = instance_type[0]
    if family == "g":
        return Ec2Quota.SPOT_G if spot else Ec2Quota.ON_DEMAND_G
    if family == "p":
        old = instance_type[1] in "234"
        return (Ec2Quota.SPOT_P if old else Ec2Quota.SPOT_P5) if spot else Ec2Quota.ON_DEMAND_P
    return Ec2Quota.SPOT_STANDARD if spot else Ec2Quota.ON_DEMAND_STANDARD
