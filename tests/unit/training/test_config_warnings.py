"""Settings that may be a mistake are warnings at preview; the run is still deployed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from infra.domain.pools import Capacity
from tests.golden import example_runs
from tests.golden.example_runs import platform
from training import placement
from training.advice import interruptions
from training.spec import Dataset, Resources, RunSpec
from training.spot.decide import best_interval_s
from training.spot.rates import NOTICED
from training.trainer_settings import config_warnings


def run(optimizer: dict[str, Any], **more: Any) -> RunSpec:
    return RunSpec(
        name="hello",
        version=1,
        team="research",
        tier="research",
        job_kind="jobset",
        nodes=2,
        processes_per_node=1,
        image="registry.example/trainer@sha256:" + "0" * 64,
        config={"steps": 100, "batch": {"global_samples": 256}, "optimizer": optimizer} | more,
        dataset=Dataset(name="stdlib"),
        resources=Resources(cpu="1", memory="1Gi", shm="64Mi"),
    )


def test_a_learning_rate_scaled_far_is_one_warning_that_names_the_run() -> None:
    found = run({"scale_learning_rate": 16})
    (line,) = config_warnings(found, platform())
    assert line.startswith(f"{found.run_id}: config: optimizer.scale_learning_rate: 256 / 16")
    assert "\n" not in line


def test_an_ordinary_run_has_no_warnings() -> None:
    assert config_warnings(run({"scale_learning_rate": 64}), platform()) == []
    assert config_warnings(run({}), platform()) == []


def saving(nodes: int = 16, **checkpoint: Any) -> RunSpec:
    """A gang on two or more whole nodes, 12 h of 1000 steps at most, with saves of 45 s."""
    config = {"steps": 1000, "batch": {"global_samples": 256}, "checkpoint": checkpoint}
    return example_runs.run(nodes=nodes, config=config)


def best_s(run: RunSpec) -> float:
    """The interval that loses least, by what is assumed of the spot pools."""
    pools = placement.eligible_pools(run, platform())
    rate, _ = interruptions([pool for pool in pools if pool.capacity is Capacity.SPOT])
    return best_interval_s(run.save_seconds, run.nodes * rate * (1 - NOTICED))


def test_a_gang_on_spot_that_saves_too_seldom_is_warned() -> None:
    best = best_s(saving())
    assert config_warnings(saving(every_seconds=1.99 * best), platform()) == []
    (line,) = config_warnings(saving(every_seconds=2.01 * best), platform())
    assert f"set every_seconds: {best:.0f}" in line and "on spot" in line and "\n" not in line


def test_steps_are_spread_over_the_time_limit() -> None:
    best = best_s(saving())
    seldom = int(2.1 * best / (12 * 3600) * 1000)
    (line,) = config_warnings(saving(every_steps=seldom), platform())
    assert f"saves may be {seldom * 43.2:.0f} s apart" in line
    assert config_warnings(saving(every_steps=seldom, every_seconds=60), platform()) == []
    (line,) = config_warnings(saving(every_steps=10**6), platform())
    assert "saves may be 43200 s apart" in line
    endless = dataclasses.replace(saving(every_steps=10**6), max_hours=None)
    assert config_warnings(endless, platform()) == []


@pytest.mark.parametrize("nodes", [2, 16, 32])
def test_the_default_saves_often_enough_for_spot(nodes: int) -> None:
    assert config_warnings(saving(nodes), platform()) == []


def test_runs_that_lose_nothing_on_spot_are_not_warned() -> None:
    steady = dataclasses.replace(saving(every_seconds=1e5), capacity_types=("on-demand",))
    assert config_warnings(steady, platform()) == []
