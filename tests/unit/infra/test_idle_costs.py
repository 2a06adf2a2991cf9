"""The table of idle costs in docs/operate.md, against the price model."""

from __future__ import annotations

import re

import pytest

from infra.cli.render import ROOT
from infra.config import parse, stack_values
from infra.domain import prices
from infra.domain.prices.services import monthly
from ops.ledger import stack_cost
from ops.ledger.stack_file import StackPrices
from tests import committed

PAGE = (ROOT / "docs/operate.md").read_text(encoding="utf-8")
SERVICES = {
    "system nodes": "system nodes",
    "endpoints": "interface endpoint",
    "control plane": "control plane",
    "FSx for Lustre": "FSx for Lustre",
}
"""Names in the table, and those of the price model."""


def row(stack: str) -> str:
    (found,) = re.findall(rf"^\| {stack} \|(.*)\|$", PAGE, re.M)
    return str(found)


def number(text: str) -> float:
    return float(text.replace(",", ""))


def priced(stack: str) -> StackPrices:
    config = parse(stack_values(ROOT / f"Pulumi.{stack}.yaml"))
    assert config.aws
    services = monthly(committed.rendered(stack), config.aws.region)
    return StackPrices(name=stack, pools=config.pools, services=services)


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_idle_costs_are_those_of_the_committed_stack(stack: str) -> None:
    hour, month = re.findall(r"([\d.,]+) (?:USD per hour|per month)", row(stack))[:2]
    one = priced(stack)
    idle = stack_cost.cost(stack, one.pools, one.services, None, {})["idleUsdPerMonth"]
    assert idle is not None
    assert number(month) == round(idle)
    digits = len(hour.partition(".")[2])
    assert number(hour) == round(idle / prices.HOURS_PER_MONTH, digits or None)


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_each_service_of_the_table_costs_what_it_says(stack: str) -> None:
    usd: dict[str, float] = {}
    for _, price in priced(stack).services:
        assert price.usd_per_month is not None
        usd[price.what] = usd.get(price.what, 0) + price.usd_per_month
    named = re.findall(rf"({'|'.join(SERVICES)}) ([\d.,]*\d)", row(stack))
    assert len(named) == 3
    for name, month in named:
        assert number(month) == round(usd[SERVICES[name]]), name


@pytest.mark.parametrize(
    ("stack", "pool", "text"),
    [
        ("dev", "cpu", r"pool `cpu` ([\d.]+) per hour"),
        ("prod", "block", r"block ([\d.]+) per hour"),
    ],
)
def test_the_pool_that_costs_most_is_priced(stack: str, pool: str, text: str) -> None:
    (one,) = [found for found in priced(stack).pools if found.name == pool]
    idle = prices.hourly(one).idle
    (said,) = re.findall(text, row(stack))
    assert idle is not None and number(said) == round(idle, len(said.partition(".")[2]) or None)
