"""Budget: the hourly cost of the stack with every pool at its maximum."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from infra.domain import catalog, naming, prices
from infra.domain.prices import Purchase

from .model import Config, Resource, StackRule, Violation, dig
from .node_pools import NodePool, node_pools
from .resource_types import AWS_PROVIDER, CONFIG_MAP

PaidPrices = Mapping[str, float | None]
"""USD per hour of one node by reservation id; None: the on-demand price."""


def paid_prices(resources: Sequence[Resource]) -> tuple[PaidPrices, ...]:
    """Return what was paid for reservations by each Platform record; nothing for one that is not known yet.

    The program publishes one record per team: the node pools by which `costCapUsd` is counted.
    """
    records = [
        dig(resource.props, "data", naming.PLATFORM_RECORD_KEY)
        for resource in resources
        if resource.type == CONFIG_MAP
        and dig(resource.props, "metadata", "name") == naming.PLATFORM_RECORD
    ]
    return tuple(_paid(json.loads(text)) for text in records if isinstance(text, str))


def _paid(record: Any) -> PaidPrices:
    found: dict[str, float | None] = {}
    for pool in dig(record, "platform", "pools"):
        if reservation := pool.get("reservation"):
            usd, name = reservation.get("usd_per_node_hour"), reservation["id"]
            # Pools that share a reservation: the highest price, and the on-demand price if one has none.
            other = found.get(name, usd)
            found[name] = None if usd is None or other is None else max(usd, other)
    return found


def highest_price(pool: NodePool, region: str, paid: Sequence[PaidPrices] = ()) -> float | None:
    """Return the USD per hour of the pool's most expensive node; None if a price is unknown.

    `paid`: what each Platform record says was paid, which counts only for the reservation that the pool's own
    resources launch into. Where records differ, the highest price counts, and one without a price as on-demand.
    """
    own = pool.reservation
    recorded = [record[own] for record in paid if own in record] if own else []
    known = [usd for usd in recorded if usd is not None]
    if recorded and len(known) == len(recorded):
        return max(known)
    way = Purchase.SPOT if pool.purchases == {Purchase.SPOT} else Purchase.ON_DEMAND
    listed = [prices.usd_per_hour(name, way, region) for name in pool.instance_types]
    if None in listed or not listed:
        return None
    return max([*(usd for usd in listed if usd is not None), *known])


def _check(resources: Sequence[Resource], config: Config) -> Iterable[Violation]:
    limit = config["limitUsdPerHour"]
    if not limit:
        return
    regions = [dig(r.props, "region") for r in resources if r.type == AWS_PROVIDER]
    region = next((name for name in regions if isinstance(name, str)), catalog.DEFAULT_REGION)
    costs, paid = list[tuple[str, float, float]](), paid_prices(resources)
    for pool in node_pools(resources):
        usd = highest_price(pool, region, paid)
        if not pool.bounded:
            yield Violation(
                "spec.limits.nodes",
                f"no limit (pool {pool.name})",
                "a limit, because the stack has an hourly budget",
                "set the pool's max",
                pool.resource.urn,
            )
        elif usd is None:
            yield Violation(
                "instance types",
                f"{', '.join(pool.instance_types) or 'none'} (pool {pool.name})",
                f"instance types with a known price in {region}",
                "refresh infra/domain/catalog.yaml, or disable the budget",
                pool.resource.urn,
            )
        elif pool.max_nodes is not None:
            costs.append((pool.name, pool.max_nodes, usd))
    total = sum(nodes * usd for _, nodes, usd in costs)
    if total > limit:
        parts = " + ".join(f"{name} {nodes:g} x {usd:.2f}" for name, nodes, usd in sorted(costs))
        yield Violation(
            "all node pools",
            f"{total:.2f} USD per hour at maximum size: {parts}",
            f"at most {limit:.2f}",
            "lower a pool's max, or raise hourly-budget.limitUsdPerHour",
        )


HOURLY_BUDGET: Final = StackRule(
    name="hourly-budget",
    description="Node pools at their maximum size cost no more than the stack's limit.",
    check=_check,
    schema={
        "limitUsdPerHour": {
            "type": "number",
            "minimum": 0,
            "default": 0,
            "description": "USD per hour for all nodes, at the prices of infra/domain/catalog.yaml and what was "
            "paid for reservations; 0: off",
        }
    },
)
