"""What a stack costs, as values and as tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from infra.domain import catalog, naming, prices
from infra.domain.pools import NodePool
from infra.domain.prices.services import SOURCE, ResourcePrice
from ops import objects
from ops.commands import printer
from ops.ledger import observe, report
from ops.ledger.model import Account, Amount, Hold
from ops.ledger.observe import Sight

Values = dict[str, Any]

_NOT_KNOWN: Final = "?"


def cost(
    name: str,
    pools: Sequence[NodePool],
    services: Sequence[tuple[str, ResourcePrice]],
    sight: Sight | None,
    month: Mapping[Account, Amount],
) -> Values:
    """Return the cost of a stack. `sight`: its cluster now, if asked; `month`: the current one, as recorded."""
    whole = prices.total_hourly(pools)
    fixed = prices.total(price.usd_per_hour for _, price in services)
    idle = prices.total([whole.idle, fixed])
    found: Values = {
        "stack": name,
        "pools": [_pool(pool, sight) for pool in pools],
        "services": _services(services),
        "usdPerHour": {
            "now": _now(pools, sight, fixed) if sight else None,
            "atMax": prices.total([whole.at_max, fixed]),
            "atMaxPreferred": prices.total([whole.at_max_preferred, fixed]),
            "atMaxOnDemand": prices.total([_on_demand(pools), fixed]),
            "idle": idle,
        },
        "idleUsdPerMonth": None if idle is None else idle * prices.HOURS_PER_MONTH,
        "ec2QuotaVcpu": {q.value: vcpu for q, vcpu in prices.ec2_quotas(pools).items()},
        "simulated": [pool.name for pool in pools if pool.nodes.simulated],
        "pricesOfServices": SOURCE,
        "prices": [_origin(region, pools) for region in sorted({p.region for p in pools})],
    }
    if sight:
        found["teamsUsdPerHour"] = _teams(sight, pools)
    if month:
        by_team = report.grouped(month, report.team_of)
        found["teamsUsdThisMonth"] = {team: round(a.usd, 2) for team, a in by_team.items()}
    return found


def _origin(region: str, pools: Sequence[NodePool]) -> Values:
    """Return date and source of a region's prices; None for a region that the catalog lacks."""
    types = {name for pool in pools if pool.region == region for name in pool.instance_types}
    lookup = catalog.load().regions.get(region)
    return {
        "region": region,
        "date": lookup.date.isoformat() if lookup else None,
        "source": lookup.source if lookup else None,
        "remembered": sorted(types & {*lookup.remembered}) if lookup else [],
    }


def _pool(pool: NodePool, sight: Sight | None) -> Values:
    hourly = prices.hourly(pool)
    values: Values = {
        "name": pool.name,
        "bought": [purchase.value for purchase in prices.purchases(pool)],
        "min": pool.min,
        "max": pool.max,
        "usdPerNodeHour": prices.per_node(pool),
        "usdPerHourAtMax": hourly.at_max,
        "usdPerHourIdle": hourly.idle,
    }
    if sight:
        mine = _nodes(pool, sight)
        bought: dict[str, int] = defaultdict(int)
        for labels in mine:
            bought[prices.purchase_of(labels, pool) or _NOT_KNOWN] += 1
        values |= {
            "nodesNow": dict(sorted(bought.items())),
            "usdPerHourNow": prices.total(prices.node_usd_per_hour(n, pool) for n in mine),
        }
    return values


def _nodes(pool: NodePool, sight: Sight) -> list[Mapping[str, str]]:
    labels = [objects.meta(node).get("labels") or {} for node in sight.nodes]
    return [one for one in labels if one.get(naming.POOL) == pool.name]


def _now(pools: Sequence[NodePool], sight: Sight, fixed: float | None) -> float | None:
    """Return the price of the nodes that are there, of reserved ones that are not, and of services."""
    parts = [fixed]
    for pool in pools:
        mine = _nodes(pool, sight)
        parts += [prices.node_usd_per_hour(one, pool) for one in mine]
        if pool.reservation:
            each = prices.per_node(pool)
            parts.append(None if each is None else max(0, pool.max - len(mine)) * each)
    return prices.total(parts)


def _on_demand(pools: Sequence[NodePool]) -> float | None:
    """Return the price at maximum size if no node were spot."""
    return prices.total(
        prices.hourly(pool).at_max
        if pool.reservation
        else (prices.per_node(pool, prices.Purchase.ON_DEMAND) or 0.0) * pool.max
        for pool in pools
    )


def _teams(sight: Sight, pools: Sequence[NodePool]) -> dict[str, float]:
    by_name = {pool.name: pool for pool in pools}
    usd: dict[str, float | None] = {}
    for node in sight.nodes:
        labels = objects.meta(node).get("labels") or {}
        pool = by_name.get(str(labels.get(naming.POOL)))
        usd[str(objects.meta(node).get("uid"))] = prices.node_usd_per_hour(labels, pool)
    found: dict[str, float] = defaultdict(float)
    for fact in observe.facts(sight):
        if isinstance(fact, Hold) and fact.end is None:
            found[fact.team] += fact.share * (usd.get(fact.node) or 0.0)
    return {team: round(value, 4) for team, value in sorted(found.items())}


def _services(services: Sequence[tuple[str, ResourcePrice]]) -> list[Values]:
    """Return services by kind: number, USD per month while nothing runs, and the price of use."""
    found: dict[str, list[ResourcePrice]] = defaultdict(list)
    for _, price in services:
        found[price.what].append(price)
    return [
        {
            "service": what,
            "number": len(each),
            "usdPerMonth": prices.total(price.usd_per_month for price in each),
            "usage": each[0].usage,
        }
        for what, each in found.items()
    ]


def show(found: Values, console: Console) -> None:
    live = found["usdPerHour"]["now"] is not None or "teamsUsdPerHour" in found
    console.print(_pool_table(found, live=live))
    if found["services"]:
        console.print(_service_table(found["services"]))
    line = printer(console)
    per_hour = found["usdPerHour"]
    if live:
        line(f"now: {_usd(per_hour['now'])} USD/h")
    line(
        f"at maximum size: {_usd(per_hour['atMax'])} USD/h; without a fallback "
        f"{_usd(per_hour['atMaxPreferred'])}; all on demand {_usd(per_hour['atMaxOnDemand'])}"
    )
    idle = found["idleUsdPerMonth"]
    line(f"while nothing runs: {_usd(per_hour['idle'])} USD/h, {_usd(idle)} USD per month")
    for key, what in (
        ("teamsUsdPerHour", "USD/h by team now"),
        ("teamsUsdThisMonth", "USD by team this month, as recorded"),
    ):
        if found.get(key):
            line(f"{what}: " + ", ".join(f"{t} {usd:,.2f}" for t, usd in found[key].items()))
    quotas = ", ".join(f"{quota} {vcpu:,}" for quota, vcpu in found["ec2QuotaVcpu"].items())
    if quotas:
        line(f"EC2 quotas that the pools need, in vCPUs, without system nodes: {quotas}")
    if found["simulated"]:
        names = ", ".join(found["simulated"])
        line(f"Simulated nodes cost nothing; priced as if they were real: {names}")
    for one in found["prices"]:
        known = f"of {one['date']}: {one['source']}" if one["date"] else "not in the catalog"
        line(f"Prices of nodes in {one['region']}: {known}")
        if one["remembered"]:
            line(f"Only remembered, never looked up: {', '.join(one['remembered'])}")
    if found["services"]:
        line(f"Prices of services: {found['pricesOfServices']}")


def _pool_table(found: Values, *, live: bool) -> Table:
    table = Table("pool", "bought", title=f"Node pools of {found['stack']}", title_justify="left")
    names = ["nodes", "USD/node-hour", "idle USD/h", "at max USD/h"]
    for name in names + (["now", "now USD/h"] if live else []):
        table.add_column(name, justify="right")
    for one in found["pools"]:
        cells = [
            one["name"],
            " or ".join(one["bought"]),
            f"{one['min']} to {one['max']}",
            _usd(one["usdPerNodeHour"]),
            _usd(one["usdPerHourIdle"]),
            _usd(one["usdPerHourAtMax"]),
        ]
        if live:
            there = ", ".join(f"{n} {how}" for how, n in one.get("nodesNow", {}).items())
            cells += [there or "0", _usd(one.get("usdPerHourNow"))]
        table.add_row(*cells)
    return table


def _service_table(services: Sequence[Values]) -> Table:
    table = Table("service", title="Services, while nothing runs", title_justify="left")
    table.add_column("number", justify="right")
    table.add_column("USD/month", justify="right")
    table.add_column("use costs in addition")
    for one in services:
        row = (one["service"], str(one["number"]), _usd(one["usdPerMonth"]), one["usage"])
        table.add_row(*row)
    return table


def _usd(value: float | None) -> str:
    return _NOT_KNOWN if value is None else f"{value:,.2f}"
