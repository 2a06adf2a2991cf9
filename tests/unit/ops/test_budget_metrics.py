"""What `cost enforce` and `spot steer` show Prometheus."""

from __future__ import annotations

import argparse
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from infra.observability import series
from ops.budgets import command, exposition
from ops.budgets.command import Controller
from ops.budgets.decision import Budget, Level, Override, Reading
from ops.budgets.exposition import TeamState
from ops.cluster import ClusterError
from ops.exposition import Page, serve
from ops.ledger import clock, observe
from ops.ledger.accounting import account
from ops.ledger.model import Bucket, Fact, Hold, Node, Phase, Wait
from ops.ledger.record import Record
from ops.steer import exposition as steering
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


def parsed(text: str) -> Samples:
    """Samples by name and labels, each of a metric that was declared before."""
    found: Samples = {}
    declared: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            declared.add(line.split()[2])
        if line.startswith("#"):
            continue
        match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        assert match and match[1] in declared, line
        labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")
        assert (match[1], tuple(labels)) not in found, "twice the same series"
        found[match[1], tuple(labels)] = float(match[3])
    return found


def named(found: Samples, one: series.Series) -> dict[tuple[str, ...], float]:
    """Values of a series by those of its labels, which are the documented ones in order."""
    for (name, labels), _ in found.items():
        if name == one.name:
            assert tuple(key for key, _ in labels) == one.labels
    return {
        tuple(v for _, v in labels): x for (name, labels), x in found.items() if name == str(one)
    }


def test_the_ledger_is_shown_by_bucket_team_pool_and_purchase() -> None:
    found = parsed(exposition.text(account(FACTS, 0, 3600), [], 3600.0))
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
    found = named(parsed(exposition.text({}, [team(level)], 1.0)), series.BUDGET_STATE)
    assert len(found) == 5
    assert [key for key, value in found.items() if value] == [("a", exposition.STATES[level])]


def test_an_override_is_a_state_with_an_end() -> None:
    granted = Override(until=9000.0, by="ada", reason="x")
    found = parsed(exposition.text({}, [team(Level.NONE, override=granted)], 1.0))
    assert named(found, series.BUDGET_STATE)["a", "overridden"] == 1
    assert named(found, series.BUDGET_OVERRIDE_END) == {("a",): 9000.0}
    assert named(found, series.BUDGET_USED) == {("a",): 0.85}
    assert named(found, series.BUDGET_GPU_HOURS) == {}, "no such limit"


def test_every_series_of_the_scrape_is_one_that_rules_know() -> None:
    granted = Override(until=9000.0, by="ada", reason="x")
    full = team(Level.HOLD, override=granted, decided=1.0)
    text = exposition.text(account(FACTS, 0, 3600), [full], 1.0)
    shown = {name for name, _ in parsed(text)} | {series.BUDGET_GPU_HOURS.name}
    assert shown == {name for name in series.ALL if name.startswith(series.COSTS_PREFIX)}


def test_every_series_of_steering_is_one_that_rules_know() -> None:
    seen = {("p", 'a"b', "z"): Exposure(node_s=3600.0, losses=1.0)}
    text = steering.text(seen, {("a", "p", "spot"): 2}, {}, 5.0)
    found = parsed(text)
    known = {name for name in series.ALL if name.startswith(series.STEERING_PREFIX)}
    assert {name for name, _ in found} == known
    assert named(found, series.STEERING_MOVES) == {("a", "p", "spot"): 2}
    assert f"# TYPE {series.STEERING_MOVES} counter" in text and r'type="a\"b"' in text


def test_labels_of_strange_nodes_stay_one_line() -> None:
    odd = Node(uid="n", pool='a"b\\c\nd', start=0)
    text = exposition.text(account([odd], 0, 60), [], 60.0)
    assert r'pool="a\"b\\c\nd"' in text and len(parsed(text)) == 4


@pytest.fixture
def served() -> Iterator[tuple[Page, str]]:
    page, port = Page(), free_port()
    server = serve(LOOPBACK, port, page)
    yield page, f"http://{LOOPBACK}:{port}"
    server.shutdown()
    server.server_close()


def test_only_metrics_are_served(served: tuple[Page, str]) -> None:
    page, url = served
    page.put("a 1\n")
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        assert answer.read() == b"a 1\n"
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    for path in ("/", "/metrics/..", "/metrics?x=1"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url + path, timeout=60)
        assert caught.value.code == 404
    with pytest.raises(ClusterError, match=r"--metrics: .* cannot listen there"):
        serve(LOOPBACK, int(url.rpartition(":")[2]), page)


@pytest.mark.parametrize("text", ["8643", ":8643", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"])
def test_an_address_needs_a_host_and_a_port(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected ADDRESS:PORT"):
        command.address(text)


def test_an_address_may_be_of_either_family() -> None:
    assert command.address("[::1]:80") == command.address("::1:80") == ("::1", 80)


def test_a_look_that_fails_leaves_the_last_one_on_the_page(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, cluster = Page(), object()
    controller = Controller(cluster, Record(tmp_path), [], print, page=page)  # type: ignore[arg-type]
    monkeypatch.setattr(clock, "check", lambda _: None)
    monkeypatch.setattr(observe, "look", lambda *_: observe.Sight(now=7200.0))
    controller.step(None, 7200.0)
    before = page.get()
    assert named(parsed(before.decode()), series.COSTS_RECORDED) == {(): 7200.0}

    def down(_: Any) -> None:
        raise clock.WrongClockError("down")

    monkeypatch.setattr(clock, "check", down)
    with pytest.raises(clock.WrongClockError):
        controller.step(None, 7300.0)
    assert page.get() == before
