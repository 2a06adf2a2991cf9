"""Explanations of a training run: healthy, or what slows it down."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from infra.domain import naming
from ops.metrics import GpuFault, Vitals
from ops.snapshot import Snapshot
from ops.symptoms import explain, health
from tests.unit.ops.run_fixtures import RUN_ID, at, log, node, pod, runs_on, snapshot
from tests.unit.snapshots import Text

WELL = {
    "steps_per_s": 2.0,
    "reported": True,
    "tokens_per_s": 18_230.0,
    "loader": 0.02,
    "collective": 0.05,
    "gpu_busy": 0.93,
}


def trains(*logs: Any, grace_s: int = 50, nodes: Any = None, **vitals: Any) -> Snapshot:
    """A run that trains with these numbers, those of a healthy one unless they are given."""
    pods = [pod("a"), pod("b")]
    for one in pods:
        one["spec"]["terminationGracePeriodSeconds"] = grace_s
    more = {} if nodes is None else {"nodes": nodes}
    numbers = Vitals(**(WELL | vitals))
    return snapshot(workload=runs_on(), pods=pods, logs=list(logs), vitals=numbers, **more)


def test_a_healthy_run_reports_its_metrics(text: Text) -> None:
    taken = trains(checkpoint_write_s=3.2)
    assert explain(taken).symptom == "running"
    text(health.notes(taken))


def test_a_run_without_metrics_is_running() -> None:
    taken = snapshot(workload=runs_on(), pods=[pod("a"), pod("b")])
    assert explain(taken).symptom == "running"
    assert health.notes(taken) == []


def test_a_run_without_a_step_has_not_trained() -> None:
    taken = snapshot(workload=runs_on(), pods=[pod("a"), pod("b")])
    assert explain(taken).headline == "has run for 30 s on spot-0; no step of it is known yet"
    for known in ({"logs": [log("a", "step 3/9  loss 5.0")]}, {"vitals": Vitals(reported=True)}):
        trained = dataclasses.replace(taken, **known)
        assert explain(trained).headline == "has trained for 30 s on spot-0"


def test_numbers_of_a_run_that_does_not_train_are_not_judged() -> None:
    taken = snapshot(workload=runs_on(), pods=[pod("a")], vitals=Vitals(loader=0.9))
    assert explain(taken).symptom == "not-ready"


def test_data_wait_is_reported_as_slow_loader_despite_gpu_utilization(text: Text) -> None:
    verdict = explain(trains(loader=0.62, gpu_busy=0.3))
    assert verdict.symptom == "slow-loader"
    text(verdict.headline)
    assert verdict.evidence[0].startswith("trainyard:run_loader:ratio: 0.62")
    assert explain(trains(loader=0.19)).symptom == "running"


def test_further_problems_are_listed_after_the_first(text: Text) -> None:
    lines = health.notes(trains(loader=0.62, gpu_busy=0.3))
    text(lines[1])


@pytest.mark.parametrize(("took", "symptom"), [(29.0, "running"), (31.0, "slow-storage")])
def test_a_checkpoint_slower_than_planned_is_reported(took: float, symptom: str) -> None:
    # 50 s of grace are 30 s for the save and 20 s for all else.
    verdict = explain(trains(checkpoint_write_s=took, grace_s=50))
    assert verdict.symptom == symptom


def test_long_checkpoint_stalls_are_reported_as_slow_storage(text: Text) -> None:
    verdict = explain(trains(checkpoint_write_s=1.0, stall=0.3))
    assert verdict.symptom == "slow-storage"
    text(verdict.headline)
    assert explain(trains(checkpoint_write_s=1.0, stall=0.04)).symptom == "running"


def test_a_failed_save_is_found_in_the_log_alone(text: Text) -> None:
    taken = snapshot(
        workload=runs_on(),
        pods=[pod("a"), pod("b")],
        logs=[log("a", "checkpoint not written: [Errno 28] No space left on device")],
    )
    verdict = explain(taken)
    assert verdict.symptom == "checkpoint-failing"
    text(verdict.evidence[0])
    assert explain(trains(saves_failed=1.0)).symptom == "checkpoint-failing"


def test_a_run_without_steps_is_stalled_unless_new() -> None:
    taken = trains(steps_per_s=0.0)
    assert explain(taken).symptom == "running"
    assert explain(_older(taken)).symptom == "stalled"


def _older(taken: Snapshot) -> Snapshot:
    """The same run, an hour after its start."""
    for one in taken.pods:
        one["status"]["startTime"] = at(3600)
    return taken


def runs_program(**vitals: Any) -> Snapshot:
    """A run with a program that reports only these numbers."""
    nothing = {"steps_per_s": None, "reported": False, "tokens_per_s": None}
    taken = trains(**(nothing | {"loader": None, "collective": None, "gpu_busy": None} | vitals))
    for one in taken.pods:
        one["spec"]["containers"][0]["env"] = [{"name": "TRAINYARD_RUN_ID", "value": RUN_ID}]
    return taken


def test_a_program_without_metrics_is_running_and_what_is_unknown_is_said() -> None:
    taken = _older(runs_program())
    assert explain(taken).symptom == "running"
    assert health.notes(taken) == [
        "no metrics: the program does not report any; see docs/runtime.md"
    ]
    assert health.notes(_older(runs_program(gpu_busy=0.9)))[0] == "GPU utilization 90 %"


def test_a_new_program_and_one_that_has_reported_are_not_called_silent() -> None:
    assert health.notes(runs_program()) == []
    assert health.notes(_older(runs_program(reported=True))) == []
    assert health.notes(_older(runs_program(reported=None))) == []
    assert health.notes(_older(trains()))[1:] == []


def test_idle_gpus_of_a_program_without_metrics_are_found_without_settings_of_the_trainer() -> None:
    verdict = explain(_older(runs_program(gpu_busy=0.3)))
    assert verdict.symptom == "low-utilization"
    assert not [line for line in verdict.remedy if "data.staging" in line or "batch." in line]


def test_zeros_of_what_a_program_does_not_report_are_no_findings() -> None:
    zeros = {"reported": True, "tokens_per_s": 0.0, "loader": 0.0, "collective": 0.0}
    taken = _older(runs_program(steps_per_s=0.5, **zeros))
    assert explain(taken).symptom == "running"
    assert health.notes(taken) == ["0.5 steps/s"]


def test_a_program_that_stops_reporting_is_stalled() -> None:
    verdict = explain(_older(runs_program(reported=True, steps_per_s=0.0)))
    assert verdict.symptom == "stalled"
    assert verdict.headline == "has all its pods but reported no step for 5 minutes"
    assert not [line for line in verdict.remedy if "collective_timeout_s" in line]


def test_idle_gpus_without_data_wait_are_reported(text: Text) -> None:
    assert explain(trains(gpu_busy=0.59)).symptom == "low-utilization"
    assert explain(trains(gpu_busy=0.61)).symptom == "running"
    waits = explain(trains(gpu_busy=0.4, collective=0.5))
    text(waits.remedy[0])


def test_poor_scaling_is_reported_with_the_earlier_run(text: Text) -> None:
    speeds = {RUN_ID: (16_000.0, 16.0), "hello-v1-b": (12_000.0, 8.0), "hello-v0-c": (400.0, 8.0)}
    far = node("spot-0")
    far["metadata"]["labels"][naming.ZONE] = "a"
    near = node("spot-1")
    near["metadata"]["labels"][naming.ZONE] = "b"
    taken = trains(speeds=speeds, nodes=[far, near])
    taken.pods[1]["spec"]["nodeName"] = "spot-1"
    verdict = explain(taken)
    assert verdict.symptom == "slow-after-scaling"
    text(verdict.headline)
    text(verdict.evidence[0])
    text(verdict.evidence[-1])


@pytest.mark.parametrize(
    "speeds",
    [
        {RUN_ID: (16_000.0, 16.0)},
        {RUN_ID: (16_000.0, 16.0), "hello-v1-b": (9_000.0, 8.0)},
        {RUN_ID: (16_000.0, 16.0), "hello-v1-b": (64_000.0, 32.0)},
        {"hello-v1-b": (64_000.0, 8.0)},
    ],
)
def test_equally_fast_or_larger_runs_are_not_evidence_of_poor_scaling(
    speeds: dict[str, tuple[float, float]],
) -> None:
    assert explain(trains(speeds=speeds)).symptom == "running"


def test_an_unhealthy_gpu_is_reported_before_other_slowness(text: Text) -> None:
    gpu_faults = (GpuFault(node="spot-0", gpu="3", what="uncorrectable memory errors"),)
    verdict = explain(trains(loader=0.9, gpu_faults=gpu_faults))
    assert verdict.symptom == "gpu-fault"
    text(verdict.headline)


def test_the_save_deadline_follows_from_the_grace_period() -> None:
    assert health.expected_save_s(trains(grace_s=50)) == 30.0
    assert health.expected_save_s(trains(grace_s=5)) == 1.0
    assert health.expected_save_s(snapshot(pods=[pod("a")])) is None
