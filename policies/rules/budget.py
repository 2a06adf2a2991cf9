"""Budget: the hourly cost of the stack with every pool at its maximum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .instance_catalog import instance_types
from .model import Config, Resource, StackRule, Violation, dig
from .names import CAPACITY_SPOT
from .node_pools import NodePool, node_pools
from .reservations import PaidPrices, paid_prices
from .resource_types import AWS_PROVIDER

_DEFAULT_REGION: Final = "us-east-1"
"""Region of the prices for a stack without a region."""


def _region(resources: Sequence[Resource]) -> str:
    for resource in resources:
        region = dig(resource.props, "region")
        if resource.type == AWS_PROVIDER and isinstance(region, str):
            return region
    return _DEFAULT_REGION


def highest_price(pool: NodePool, region: str, paid: Sequence[PaidPrices] = ()) -> float | None:
    """Return the USD per hour of the pool's most expensive node; None if a price is unknown.

    `paid`: what each Platform record says was paid, which counts only for the reservation that the pool's own
    resources launch into. Where records differ, the highest price counts, and one without a price as on-demand.
    """
    own = pool.reservation
    recorded = [prices[own] for prices in paid if own in prices] if own else []
    known = [usd for usd in recorded if usd is not None]
    if recorded and len(known) == len(recorded):
        return max(known)
    listed = _list_price(pool, region)
    return None if listed is None else max([listed, *known])


def _list_price(pool: NodePool, region: str) -> float | None:
    """Return the catalog's price: on-demand where there is no spot price, or the pool is not spot-only."""
    spot_only = pool.capacity_types == {CAPACITY_SPOT}
    prices: list[float | None] = []
    for name in pool.instance_types:
        facts = instance_types().get(name)
        spot = facts.spot.get(region) if facts and spot_only else None
        prices.append(spot or (facts.on_demand.get(region) if facts else None))
    known = [price for price in prices if price is not None]
    return max(known) if known and len(known) == len(prices) else None


def _unbounded(pool: NodePool) -> Violation:
    return Violation(
        path="spec.limits.nodes",
        got=f"no limit (pool {pool.name})",
        expected="a limit, because the stack has an hourly budget",
        remedy="set the pool's max",
        urn=pool.resource.urn,
    )


def _unpriced(pool: NodePool, region: str) -> Violation:
    return Violation(
        path="instance types",
        got=f"{', '.join(pool.instance_types) or 'none'} (pool {pool.name})",
        expected=f"instance types with a known price in {region}",
        remedy="refresh infra/domain/catalog.yaml, or disable the budget",
        urn=pool.resource.urn,
    )


def _over(costs: Sequence[tuple[str, float, float]], limit: float) -> Iterable[Violation]:
    total = sum(nodes * usd for _, nodes, usd in costs)
    if total > limit:
        parts = (f"{name} {nodes:g} x {usd:.2f}" for name, nodes, usd in sorted(costs))
        yield Violation(
            path="all node pools",
            got=f"{total:.2f} USD per hour at maximum size: {' + '.join(parts)}",
            expected=f"at most {limit:.2f}",
            remedy="lower a pool's max, or raise hourly-budget.limitUsdPerHour",
        )


def _check(resources: Sequence[Resource], config: Config) -> Iterable[Violation]:
    if not config["limitUsdPerHour"]:
        return
    region, costs = _region(resources), list[tuple[str, float, float]]()
    paid = paid_prices(resources)
    for pool in node_pools(resources):
        usd = highest_price(pool, region, paid)
        if not pool.bounded:
            yield _unbounded(pool)
        elif usd is None:
            yield _unpriced(pool, region)
        elif pool.max_nodes is not None:
            costs.append((pool.name, pool.max_nodes, usd))
    yield from _over(costs, config["limitUsdPerHour"])


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
