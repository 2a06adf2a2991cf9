"""`trainyard sweep`: what a round decides, what it costs, and how the result is shown."""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.domain import naming
from ops import __main__ as front_door
from ops.cluster import ClusterError
from ops.collect import CONFIG_MAPS
from ops.objects import Json
from ops.runs.listing import summarize
from ops.sweep import driver, report, store
from ops.sweep import state as states
from ops.sweep.driver import Driver
from ops.sweep.space import Asha
from ops.sweep.state import SweepState, Trial
from tests.unit.ops.conftest import Cli
from tests.unit.ops.ready_cluster import LiveFake
from tests.unit.ops.run_fixtures import workload

NOW = dt.datetime(2026, 1, 1, 12, 0, tzinfo=dt.UTC)
NAMESPACE = "team-research"
RULES = Asha(min_steps=10, reduction=2)


def trial(number: int, **changes: Any) -> Trial:
    parameters = {"optimizer.learning_rate": 0.001 * 10**number, "model.kind": f"k{number % 2}"}
    known = Trial(run_id=f"lr-{number:03d}-v1-0", name=f"lr-{number:03d}", parameters=parameters)
    return dataclasses.replace(known, **changes)


def sweep(*trials: Trial, **changes: Any) -> SweepState:
    known = SweepState(
        sweep="lr-v1",
        name="lr",
        team="research",
        method="asha",
        metric="loss",
        maximize=False,
        parallel=2,
        usd_per_hour=10.0,
        max_hours=2.0,
        cost_cap_usd=None,
        trials=trials,
    )
    return dataclasses.replace(known, **changes)


def run_object(one: Trial, *conditions: str) -> Json:
    labels = {naming.RUN_ID: one.run_id, naming.RUN: one.name, naming.SWEEP: "lr-v1"}
    labels[naming.QUEUE_NAME] = "research"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": one.run_id,
            "namespace": NAMESPACE,
            "uid": f"uid-{one.run_id}",
            "labels": labels,
            "creationTimestamp": "2026-01-01T10:00:00Z",
        },
        "status": {"conditions": [condition(name) for name in conditions]},
    }


def condition(name: str, since: str = "2026-01-01T11:30:00Z") -> Json:
    return {"type": name, "status": "True", "lastTransitionTime": since, "message": "because"}


def admitted(one: Trial) -> Json:
    conditions = (condition(n, "2026-01-01T11:00:00Z") for n in ("QuotaReserved", "Admitted"))
    return workload(*conditions, run_id=one.run_id, uid=f"uid-{one.run_id}")


def memory(*items: Json) -> LiveFake:
    """The objects of an API server, with the versions that detect concurrent writes."""
    return LiveFake(*items, run_job=lambda *_: None)


def created(cluster: LiveFake) -> list[str]:
    return [item["metadata"]["name"] for item in cluster.created]


def make_driver(
    cluster: LiveFake, state: SweepState, losses: Mapping[str, Mapping[int, float]] = {}
) -> Driver:
    by_id = {one.run_id: one for one in state.trials}
    return Driver(
        cluster=cluster,  # type: ignore[arg-type]
        namespace=NAMESPACE,
        manifests=lambda run_id: [run_object(by_id[run_id])],
        read_values=lambda trials, pods: losses,
        asha=RULES,
        report=lambda _: None,
    )


def test_a_run_that_somebody_deleted_is_not_submitted_again() -> None:
    state = sweep(trial(0, state=states.RUNNING, admitted="2026-01-01T11:00:00Z"), trial(1))
    cluster = memory()
    work = make_driver(cluster, state)
    stored = driver.run_round(work, store.open_sweep(work.cluster, state))
    assert [one.state for one in stored.state.trials] == ["deleted", "queued"]
    assert stored.state.trials[0].reason == "its object was deleted"


def test_a_round_keeps_the_last_value_of_a_run() -> None:
    state = sweep(trial(0, state=states.RUNNING))
    losses = {trial(0).run_id: {5: 3.0, 9: 2.5}}
    work = make_driver(memory(run_object(trial(0))), state, losses)
    [found] = driver.run_round(work, store.open_sweep(work.cluster, state)).state.trials
    assert (found.step, found.value) == (9, 2.5)


def test_runs_are_submitted_when_their_dataset_is_prepared() -> None:
    state = sweep(trial(0))
    cluster = memory()
    preparation = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "prepare", "namespace": NAMESPACE},
    }
    work = dataclasses.replace(
        make_driver(cluster, state), manifests=lambda _: [preparation, run_object(trial(0))]
    )
    stored = driver.run_round(work, store.open_sweep(work.cluster, state))
    stored = driver.run_round(work, stored)
    assert "prepare" in created(cluster)
    assert trial(0).run_id not in created(cluster)
    job = cluster.kept[("Job", NAMESPACE, "prepare")]
    job["status"] = {"conditions": [condition("Failed")]}
    with pytest.raises(ClusterError, match="failed to prepare the dataset: because"):
        driver.run_round(work, stored)
    job["status"] = {"conditions": [condition("Complete")]}
    assert driver.run_round(work, stored).state.trials[0].state == states.QUEUED
    assert created(cluster).count("prepare") == 1


def test_an_ended_run_is_a_peer_and_is_not_stopped() -> None:
    done = trial(0, state=states.DONE)
    known = {done.run_id: {10: 5.0, 20: 4.0}}
    state, stopped = driver.judged(sweep(done, trial(1)), known, RULES, NOW)
    assert stopped == []
    assert state.trials[0].rungs == {10: 5.0, 20: 4.0}
    assert state.trials[0].state == states.DONE


def test_a_continued_sweep_takes_further_runs_and_refuses_other_ones() -> None:
    stored = sweep(trial(0, state=states.DONE), trial(1))
    longer = store.extended(stored, sweep(trial(0), trial(1), trial(2), parallel=7))
    assert [one.state for one in longer.trials] == ["done", "waiting", "waiting"]
    assert longer.parallel == 7
    assert store.extended(stored, sweep(trial(0))).trials == (stored.trials[0],)
    for other in (sweep(trial(3), trial(1)), sweep(trial(0), metric="mfu"), sweep()):
        with pytest.raises(ClusterError, match="raise `version`"):
            store.extended(stored, other)


def seen(one: Trial, run: Json, mine: Json | None, now: dt.datetime = NOW) -> Trial:
    [found] = summarize([run], [mine] if mine else [], [], {})
    return driver.seen(one, found, now, 2.0)


def test_hours_count_from_the_first_admission_up_to_the_limit() -> None:
    one = seen(trial(0), run_object(trial(0)), admitted(trial(0)))
    assert (one.state, one.hours) == (states.RUNNING, 1.0)
    again = seen(one, run_object(one), None, NOW + dt.timedelta(hours=0.5))
    assert (again.state, again.hours) == (states.QUEUED, 1.5)
    assert seen(again, run_object(one), None, NOW + dt.timedelta(days=1)).hours == 2.0
    done = seen(again, run_object(one, "Completed"), None)
    assert (done.state, done.hours) == (states.DONE, 0.5)


OVER = condition("Evicted") | {"message": "MaximumExecutionTimeExceeded"}


@pytest.mark.parametrize(
    ("conditions", "mine", "state", "reason"),
    [
        ([], {}, states.QUEUED, ""),
        (["Failed"], {}, states.FAILED, "because"),
        (
            [],
            {"spec": {"active": False}, "status": {"conditions": [OVER]}},
            "stopped",
            OVER["message"],
        ),
    ],
)
def test_a_run_has_its_state_and_reason(
    conditions: list[str], mine: Json, state: str, reason: str
) -> None:
    one = seen(trial(0), run_object(trial(0), *conditions), mine and admitted(trial(0)) | mine)
    assert (one.state, one.reason, one.hours) == (state, reason, 0.0)


def test_no_run_is_submitted_that_could_exceed_the_cap() -> None:
    """Two hours at 10 USD: an active run may still cost 20, an ended one has cost what it has."""
    used = trial(0, state=states.DONE, hours=0.5)
    state = sweep(used, trial(1, state=states.RUNNING, hours=1.0), trial(2), cost_cap_usd=45)
    assert state.next_fits_budget()
    assert not dataclasses.replace(state, cost_cap_usd=44).next_fits_budget()


def test_runs_beyond_the_budget_end_the_sweep_when_nothing_is_active() -> None:
    state = sweep(trial(0, state=states.DONE, hours=2.0), trial(1), cost_cap_usd=30)
    work = make_driver(memory(), state)
    stored = driver.run_round(work, store.open_sweep(work.cluster, state))
    assert stored.state.trials[1].state == states.OVER_BUDGET
    assert stored.state.ended


def test_metric_lines_are_found_among_other_output() -> None:
    text = "\n".join(
        [
            'trainyard-metric {"step": 5, "loss": 2.5, "mfu": 0.4}',
            '2026-01-01T00:00:00Z trainyard-metric {"step": 10, "loss": 1.5}',
            'trainyard-metric {"step": 10, "eval_loss": 1.7}',
            'trainyard-metric {"step": 11, "loss": NaN}',
            'trainyard-metric {"step": "x", "loss": 1}',
            'trainyard-metric {"step": 12, "loss": "low"}',
            "trainyard-metric [1]",
            "trainyard-metric {",
            "loss 3",
        ]
    )
    found = driver.parse_values(text, "loss")
    assert list(found) == [5, 10, 11]
    assert (found[5], found[10]) == (2.5, 1.5)
    assert math.isnan(found[11])
    assert driver.parse_values(text, "eval_loss") == {10: 1.7}


RESULT = sweep(
    trial(0, state=states.DONE, step=40, value=2.0, hours=1.0),
    trial(1, state=states.DONE, step=40, value=1.25, hours=1.5),
    trial(2, state=states.STOPPED, step=10, value=1.0, hours=0.25, reason="worse, at step 10"),
    trial(3, state=states.FAILED, reason="exit code 1"),
)


def test_best_is_the_best_of_the_runs_that_are_done() -> None:
    """The stopped one had a smaller loss, which it might not have kept."""
    best = RESULT.best()
    assert best is not None
    assert best.name == "lr-001"
    assert [one.name for one in report.ranked(RESULT)] == ["lr-001", "lr-000", "lr-002", "lr-003"]


def test_csv_has_all_runs_with_their_parameters_and_costs() -> None:
    rows = list(csv.DictReader(io.StringIO(report.csv_text(RESULT))))
    assert [row["state"] for row in rows] == ["done", "done", "stopped", "failed"]
    assert rows[1]["loss"] == "1.25"
    assert rows[1]["usd_at_most"] == "15.0000"
    assert rows[2]["reason"] == "worse, at step 10"
    assert float(rows[1]["optimizer.learning_rate"]) == 0.01


def test_show_finds_the_newest_version(cli: Cli, tmp_path: Path) -> None:
    cluster = memory()
    for version in (2, 10):
        state = dataclasses.replace(RESULT, sweep=f"lr-v{version}")
        cluster.create(CONFIG_MAPS, store.manifest(state))
    table = tmp_path / "lr.csv"
    assert cli(cluster, "sweep", "show", "lr", "--csv", str(table)) == 0
    assert "lr-v10: 2 done, 1 failed, 1 stopped; best loss 1.25" in cli.out
    assert len(table.read_text().splitlines()) == 5
    assert cli(cluster, "sweep", "show", "other") == 2
    assert "sweep 'other': not found; existing sweeps: lr-v10, lr-v2" in cli.err
    assert cli(cluster, "sweep", "show", "lr", "--csv", str(tmp_path / "none/a.csv")) == 2
    assert "choose another file" in cli.err


def test_check_needs_no_cluster(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_door, "Cluster", None)
    assert front_door.main(["sweep", "check", "training/runs/sweep.yaml", "--stack", "local"]) == 0
    out = capsys.readouterr().out
    assert "lr-000-v1-" in out
    assert "6 runs, 3 at a time; at most" in out
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: lr\n")
    assert front_door.main(["sweep", "check", str(bad), "--stack", "local"]) == 1
    assert "not one document with a section sweep" in capsys.readouterr().err
