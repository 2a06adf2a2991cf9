"""Spot or on-demand: the arithmetic against a simulation, and the command's output."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import statistics
from pathlib import Path

import pytest
import yaml

from bench.request import ROOT
from ops.__main__ import main as trainyard
from training.advice import Market, Work, advise

WORK = Work(hours=40, nodes=4, save_s=60, checkpoint_every_s=1800)
MARKET = Market(interruptions_per_node_hour=0.1, noticed=0.5, restart_s=600)
SEED = 20260119


def _simulated(work: Work, market: Market, draw: random.Random) -> float:
    """Hours that one run takes: it goes from checkpoint to checkpoint until its work is done."""
    rate = work.nodes * market.interruptions_per_node_hour / 3600
    every, clock, done, total = work.checkpoint_every_s, 0.0, 0.0, work.hours * 3600
    until = draw.expovariate(rate)
    while done < total:
        into = done % every
        left = min(every - into, total - done)
        stretch = left + (work.save_s if left == every - into else 0)
        if until > stretch:
            until -= stretch
            clock += stretch
            done = min(
                total, round((done + left) / every) * every if left < total - done else total
            )
            continue
        clock += until + market.restart_s
        kept = draw.random() < market.noticed
        done = done + min(until, left) if kept else done - into
        until = draw.expovariate(rate)
    return clock / 3600


def test_the_expected_and_the_late_time_are_those_of_simulated_runs() -> None:
    draw = random.Random(SEED)
    print("seed", SEED)
    hours = sorted(_simulated(WORK, MARKET, draw) for _ in range(2000))
    outlook = advise(WORK, MARKET, 10, 30).spot
    assert outlook.hours == pytest.approx(statistics.mean(hours), rel=0.03)
    assert outlook.late_hours == pytest.approx(hours[1900], rel=0.05)


def test_no_interval_between_checkpoints_loses_less_than_the_best() -> None:
    best = advise(WORK, MARKET, 10, 30).best_checkpoint_every_s

    def hours(every: float) -> float:
        return advise(
            dataclasses.replace(WORK, checkpoint_every_s=every), MARKET, 10, 30
        ).spot.hours

    assert hours(best) < hours(best * 0.7)
    assert hours(best) < hours(best * 1.4)


def test_a_long_run_without_a_deadline_goes_to_spot_for_its_price() -> None:
    found = advise(WORK, MARKET, 10, 30)
    assert found.capacity == "spot"
    assert found.spot.usd is not None and found.on_demand.usd is not None
    assert (
        found.reason
        == f"it is expected to cost {1 - found.spot.usd / found.on_demand.usd:.0%} less"
    )


def test_a_deadline_that_spot_may_miss_makes_it_on_demand() -> None:
    tight = advise(WORK, MARKET, 10, 30)
    deadline = (tight.on_demand.hours + tight.spot.late_hours) / 2
    assert advise(dataclasses.replace(WORK, deadline_h=deadline), MARKET, 10, 30).capacity == (
        "on-demand"
    )
    relaxed = dataclasses.replace(WORK, deadline_h=tight.spot.late_hours + 1)
    assert advise(relaxed, MARKET, 10, 30).capacity == "spot"


def test_an_unreachable_deadline_is_reported() -> None:
    found = advise(dataclasses.replace(WORK, deadline_h=10), MARKET, 10, 30)
    assert found.reason == "it also misses the deadline of 10 h; request more nodes"


def test_a_small_discount_does_not_pay_for_what_spot_repeats() -> None:
    found = advise(WORK, MARKET, 29, 30)
    assert (found.capacity, found.reason) == (
        "on-demand",
        "work repeated on spot costs more than its discount saves",
    )


def test_a_market_that_interrupts_faster_than_a_run_recovers_is_left() -> None:
    wild = dataclasses.replace(MARKET, interruptions_per_node_hour=2)
    found = advise(WORK, wild, 1, 30)
    assert found.capacity == "on-demand" and math.isinf(found.spot.hours)


@pytest.mark.parametrize(
    ("spot", "on_demand", "capacity", "missing"),
    [(None, 30, "on-demand", "spot"), (10, None, "spot", "on-demand")],
)
def test_without_a_price_the_other_capacity_is_named(
    spot: float | None, on_demand: float | None, capacity: str, missing: str
) -> None:
    found = advise(WORK, MARKET, spot, on_demand)
    assert found.capacity == capacity
    assert found.reason == f"no eligible {missing} pool has a known price"


def test_the_command_advises_a_run_of_the_local_stack(capsys: pytest.CaptureFixture[str]) -> None:
    stack = str(ROOT / "Pulumi.local.yaml")
    words = ["hello", "--stack", stack, "--hours", "40"]
    assert trainyard(["run", "advise", *words, "--checkpoint-every", "1800"]) == 0
    said = capsys.readouterr().out
    assert "Advice: spot: it is expected to cost" in said and "40.7 h" in said
    assert re.search(r"On spot with a checkpoint every \d+ s, which loses least", said)
    # A third of 40 h: 40 of the 120 steps of training/configs/hello.yaml.
    assert trainyard(["run", "advise", *words]) == 0
    assert "every 48000 s" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("types", "gpu", "more", "rate", "origin"),
    [
        (
            "g6e.xlarge",
            "l40s",
            [],
            "0.06",
            "assumed from AWS' Spot Instance Advisor: 5-10% of g6e.xlarge in us-east-1 a month",
        ),
        (
            "p5.4xlarge",
            "h100",
            [],
            "0.2",
            "assumed: AWS' Spot Instance Advisor does not list p5.4xlarge in us-east-1",
        ),
        (
            "g6e.xlarge g6e.12xlarge",
            "l40s",
            [],
            "0.2",
            "assumed from AWS' Spot Instance Advisor: >20% of g6e.12xlarge in us-east-1 a month",
        ),
        ("g6e.xlarge", "l4", [], "0.2", "assumed: no spot pool fits"),
        ("g6e.xlarge", "l40s", ["--interruptions", "0.5"], "0.5", "as given"),
    ],
)
def test_the_command_assumes_the_interruptions_of_the_pools_types_and_says_so(
    types: str,
    gpu: str,
    more: list[str],
    rate: str,
    origin: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = yaml.safe_load((ROOT / "Pulumi.local.yaml").read_text())
    [spot] = [one for one in values["config"]["trainyard:nodePools"] if one["name"] == "spot"]
    spot["instanceTypes"] = types.split()
    stack = tmp_path / "Pulumi.local.yaml"
    stack.write_text(yaml.safe_dump(values))
    run = tmp_path / "hello.yaml"
    hello = yaml.safe_load((ROOT / "training/runs/hello.yaml").read_text())
    run.write_text(yaml.safe_dump(hello | {"gpuModel": gpu, "costCapUsd": 50}))
    assert (
        trainyard(["run", "advise", str(run), "--stack", str(stack), "--hours", "40", *more]) == 0
    )
    said = " ".join(capsys.readouterr().out.split())
    assert f"on spot {rate} interruptions per node and hour ({origin}), 90%" in said


def test_the_command_names_groups_where_a_stack_has_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = yaml.safe_load((ROOT / "Pulumi.local.yaml").read_text())
    stack = tmp_path / "Pulumi.local.yaml"

    def advised(run: str) -> str:
        stack.write_text(yaml.safe_dump(values))
        assert trainyard(["run", "advise", run, "--stack", str(stack), "--hours", "40"]) == 0
        return " ".join(capsys.readouterr().out.split())

    assert "groups" not in advised("hello")
    values["config"]["trainyard:elasticRuns"] = {"image": "sandbox.trainyard.dev/ops@source"}
    assert "keep the others training meanwhile: nodes: 1 and groups: {max: 2}" in advised("hello")
    said = advised("elastic")
    assert "Its 2 groups are counted as one gang" in said and ": 2 nodes," in said


def test_an_invalid_time_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        trainyard(["run", "advise", "hello", "--stack", "Pulumi.local.yaml", "--hours", "0"])
    assert "0 is not above 0; must be a number above 0" in capsys.readouterr().err
