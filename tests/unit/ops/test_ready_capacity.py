"""Stage 1, on the nodes of the API server."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from infra.domain import naming
from ops.objects import Json
from ops.ready import capacity, stack_facts
from ops.ready.outcome import Check, Outcome
from ops.ready.stack_facts import Pool
from tests.unit.ops.ready_cluster import facts, node, nodes, pool
from tests.unit.snapshots import Text


def _pool(low: int = 2, high: int = 2, **changes: Any) -> Pool:
    text = facts(pool("spot", low, high, **changes))["data"][stack_facts.KEY]
    return stack_facts.parse(text).pools[0]


def _check(found: list[Json], low: int = 2, high: int = 2, **changes: Any) -> Check:
    return capacity.check_pool(_pool(low, high, **changes), found)


def test_a_complete_pool_passes_and_reports_its_counts(text: Text) -> None:
    check = _check(nodes("spot"))
    assert (check.outcome, check.subject) == (Outcome.PASSED, "pool spot")
    text(check.seen)
    assert check.facts == {"nodes": 2, "ready": 2, "gpus": 2}


def test_a_pool_scaled_to_zero_is_reported_without_failing(text: Text) -> None:
    check = _check([], low=0, high=50)
    assert check.outcome is Outcome.SKIPPED
    text(check.seen)


def test_any_node_count_within_bounds_passes() -> None:
    assert _check(nodes("spot", 3), low=0, high=50).outcome is Outcome.PASSED


def test_unavailable_nodes_are_excluded_and_named(text: Text) -> None:
    text(_check(nodes("spot", 1)).seen)
    lost = [node("spot-0", "spot", ready=False), node("spot-1", "spot", unschedulable=True)]
    check = _check([*lost, node("spot-2", "spot")], low=2, high=3)
    assert check.outcome is Outcome.FAILED
    text(check.seen)
    text(check.remedy)


def test_a_cordoned_node_above_the_minimum_is_reported_without_failing(text: Text) -> None:
    check = _check([*nodes("spot"), node("spot-2", "spot", unschedulable=True)], high=3)
    assert check.outcome is Outcome.PASSED
    text(check.seen)


def test_nodes_without_gpus_point_to_the_device_plugin(text: Text) -> None:
    check = _check([node("spot-0", "spot"), node("spot-1", "spot", gpus=0)])
    assert check.outcome is Outcome.FAILED
    text(check.seen)
    assert "device plugin" in check.remedy and "spec.nodeName=spot-1" in check.remedy


def test_every_expected_device_is_checked(text: Text) -> None:
    of = dataclasses.replace(_pool(), allocatable={naming.GPU: 1, naming.EFA: 4})
    text(capacity.check_pool(of, nodes("spot")).seen)


def test_surplus_nodes_are_reported_as_foreign(text: Text) -> None:
    check = _check(nodes("spot", 3))
    assert check.outcome is Outcome.FAILED
    text(check.seen)


@pytest.mark.parametrize(
    ("made_by", "where"),
    [("karpenter", "nodeclaims"), ("managed", "describe-nodegroup"), ("existing", "uncordon")],
)
def test_the_remedy_names_the_provisioner(made_by: str, where: str) -> None:
    assert where in _check([], nodes=made_by).remedy
