"""The policy pack prices the pools of every committed stack as the program does."""

from __future__ import annotations

import pytest

from infra.config import parse, stack_values
from infra.domain import prices
from policies.rules.budget import _highest_price
from policies.rules.node_pools import node_pools
from tests.policy.policy_stacks import ROOT, rendered


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_the_pack_and_the_program_price_pools_alike(stack: str) -> None:
    pools = {p.name: p for p in parse(stack_values(ROOT / f"Pulumi.{stack}.yaml")).pools}
    found = {
        pool.name: _highest_price(pool, pools[pool.name].region)
        for pool in node_pools(rendered(stack))
        if pool.name in pools
    }
    assert found == {name: prices.per_node(pool) for name, pool in pools.items()}
