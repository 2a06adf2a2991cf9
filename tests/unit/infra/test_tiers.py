"""Tiers: complete, consistent with the stack file, and compared by their facts only."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

from infra.domain.pools import PurchaseModel
from infra.domain.tier import TIERS, Tier, TierName
from infra.queueing.priorities import PRIORITIES

ROOT = Path(__file__).resolve().parents[3]


def test_every_tier_name_of_the_stack_file_is_defined() -> None:
    assert set(TIERS) == set(get_args(TierName))


@pytest.mark.parametrize("tier", TIERS.values(), ids=lambda tier: tier.name)
def test_tier_orders_every_purchase_model_once_and_has_a_priority(tier: Tier) -> None:
    assert sorted(tier.purchase_order, key=lambda m: m.name) == sorted(
        PurchaseModel, key=lambda m: m.name
    )
    assert tier.default_priority in PRIORITIES


def test_no_other_module_contains_tier_names() -> None:
    # The second is the name of a stage of `stack ready`.
    homes = {"infra/domain/tier.py", "ops/ready/production/__init__.py"}
    found = {
        path.relative_to(ROOT).as_posix()
        for room in ("infra", "training", "ops", "policies", "sandbox")
        for path in (ROOT / room).rglob("*.py")
        if ".venv" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value == "production"
    }
    assert found <= homes
