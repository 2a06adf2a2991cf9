"""What `cost enforce` and `spot steer` show Prometheus."""

from __future__ import annotations

import argparse
import urllib.request
from collections.abc import Iterable
from typing import Any

import pytest

from infra.observability import series
from ops.budgets import control
from ops.budgets.control import TeamState
from ops.budgets.decision import Budget, Level, Override, Reading
from ops.cluster import ClusterError
from ops.exposition import Page, Sample, address, serving
from ops.ledger.accounting import account
from ops.ledger.model import Bucket, Fact, Hold, Node, Phase, Wait
from ops.steer import control as steering
from sandbox.ports import LOOPBACK, free_port
from training.spot.rates import Exposure

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
FACTS: list[Fact] = [
    Node(uid="n", pool="p", purchase="spot", start=0, usd_per_hour=36.0, gpus=8.0),
    Node(uid="m", pool="q", start=0),
    Hold(uid="h", node="n", run="r", team="a", start=1000, end=2800),
    Phase(run="r", attempt=1, start=1000, end=2800, seconds={Bucket.PRODUCTIVE: 1800}, steps=10),
    Wait(run="s", team="b", start=2800, end=3600, pools=("p",)),
]


def team(level: Level, **more: Any) -> TeamState:
    reading = Reading(at=3600, usd=85.0, gpu_hours=4.0, usd_per_hour=36.0, gpus=8.0)
    return TeamState(
        budget=Budget(team="a", usd_per_month=100.0), reading=reading, level=level, **more
    )


def parsed(samples: Iterable[Sample], declared: Iterable[series.Series] = ()) -> Samples:
    """Samples by name and labels, as a scrape gets them."""
    page = Page()
    page.put(samples, declared)
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in page.collect()
        for one in family.samples
    }


def named(found: Samples, one: series.Series) -> dict[tuple[str, ...], float]:
    """Values of a series by those of its labels, which are the documented ones."""
    mine = {labels: value for (name, labels), value in found.items() if name == one.name}
    assert all({key for key, _ in labels} == set(one.labels) for labels in mine)
    return {tuple(dict(labels)[key] for key in one.labels): x for labels, x in mine.items()}


def test_the_ledger_is_shown_by_bucket_team_pool_and_purchase() -> None:
    found = parsed(control.samples(account(FACTS, 0, 3600), [], 3600.0))
    assert named(found, series.LEDGER_SECONDS) == {
        ("productive", "a", "p", "spot"): 1800,
        ("waiting", "b", "p", "spot"): 800,
        ("idle", "", "p", "spot"): 1000,
        ("idle", "", "q", ""): 3600,
    }
    assert sum(named(found, series.LEDGER_USD).values()) == pytest.approx(36.0)
    assert named(found, series.LEDGER_UNPRICED)["idle", "", "q", ""] == 3600
    assert named(found, series.COSTS_RECORDED) == {(): 3600.0}


@pytest.mark.parametrize("level", Level)
def test_exactly_one_state_of_a_team_is_shown(level: Level) -> None:
    found = named(parsed(control.samples({}, [team(level)], 1.0)), series.BUDGET_STATE)
    assert len(found) == 5
    assert [key for key, value in found.items() if value] == [("a", control.STATES[level])]


def test_an_override_is_a_state_with_an_end() -> None:
    granted = Override(until=9000.0, by="ada", reason="x")
    found = parsed(control.samples({}, [team(Level.NONE, override=granted)], 1.0))
    assert named(found, series.BUDGET_STATE)["a", "overridden"] == 1
    assert named(found, series.BUDGET_OVERRIDE_END) == {("a",): 9000.0}
    assert named(found, series.BUDGET_USED) == {("a",): 0.85}
    assert named(found, series.BUDGET_GPU_HOURS) == {}, "no such limit"


def test_every_series_of_the_scrape_is_one_that_rules_know() -> None:
    granted = Override(until=9000.0, by="ada", reason="x")
    full = team(Level.HOLD, override=granted, decided=1.0)
    found = parsed(control.samples(account(FACTS, 0, 3600), [full], 1.0))
    assert {name for name, _ in found} | {series.BUDGET_GPU_HOURS.name} == {
        name for name in series.ALL if name.startswith(series.COSTS_PREFIX)
    }


MOVES = {("a", "p", "spot"): 2}


def test_every_series_of_steering_is_one_that_rules_know() -> None:
    seen = {("p", 'a"b', "z"): Exposure(node_s=3600.0, losses=1.0)}
    found = parsed(steering.samples(seen, MOVES, {}, 5.0), steering.DECLARED)
    known = {name for name in series.ALL if name.startswith(series.STEERING_PREFIX)}
    assert {name for name, _ in found} == known
    assert named(found, series.STEERING_MOVES) == MOVES


def test_the_last_look_is_served() -> None:
    page, port = Page(), free_port()
    page.put(steering.samples({}, MOVES, {}, 5.0), steering.DECLARED)
    with serving((LOOPBACK, port), page):
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        with (
            pytest.raises(ClusterError, match=r"--metrics: .* cannot listen there"),
            serving((LOOPBACK, port), page),
        ):
            pass
    assert f"# TYPE {series.STEERING_MOVES} counter" in text
    assert f'{series.STEERING_MOVES}{{pool="p",team="a",to="spot"}} 2.0' in text


@pytest.mark.parametrize("text", ["8643", ":8643", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"])
def test_an_address_needs_a_host_and_a_port(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected ADDRESS:PORT"):
        address(text)
