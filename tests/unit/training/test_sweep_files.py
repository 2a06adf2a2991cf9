"""Run files with a section `sweep`: which runs they become, and one issue for each mistake."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import ConfigError
from infra.domain import naming
from ops.sweep import files as sweep_files
from ops.sweep.files import Sweep
from ops.sweep.state import SweepState
from tests.golden.example_runs import IMAGE, RUN_FILE, platform, project_in, write_runs
from tests.unit.infra.config_issues import codes
from tests.unit.training.config_issues import check_issues
from training import job, run_files

Run = dict[str, Any]

SWEPT: Run = RUN_FILE | {
    "maxHours": 2,
    "sweep": {
        "method": "random",
        "parameters": {
            "optimizer.learning_rate": {"min": 0.0001, "max": 0.01, "scale": "log"},
            "schedule.warmup_steps": [5, 10],
        },
        "runs": 4,
        "parallel": 2,
        "seed": 3,
    },
}
GRID = {"method": "grid", "parameters": {"optimizer.learning_rate": [0.1, 0.2], "seed": [1, 2]}}


def load(folder: Path, document: Run) -> Sweep:
    project = project_in(folder)
    write_runs(project, document)
    file = project / "training/runs/llama.yaml"
    return sweep_files.load(file, platform(), {"trainer": IMAGE}, project)


def with_sweep(**changes: Any) -> Run:
    return SWEPT | {"sweep": SWEPT["sweep"] | changes}


def test_runs_share_everything_but_their_parameters(tmp_path: Path) -> None:
    sweep = load(tmp_path, SWEPT)
    runs = [sweep.runs[trial.run_id] for trial in sweep.state.trials]
    assert [run.name for run in runs] == [f"llama-{n:03d}" for n in range(4)]
    assert len({(run.image, run.dataset, run.resources) for run in runs}) == 1
    for trial, run in zip(sweep.state.trials, runs, strict=True):
        rate = trial.parameters["optimizer.learning_rate"]
        assert run.config["optimizer"]["learning_rate"] == rate
        assert run.config["schedule"]["warmup_steps"] == trial.parameters["schedule.warmup_steps"]
        assert run.config["batch"]["global_samples"] == 256


def test_runs_queue_as_one_group_below_all_other_runs(tmp_path: Path) -> None:
    sweep = load(tmp_path, SWEPT)
    for run in sweep.runs.values():
        *_, queued = job.submitted(run, platform(), "c" * 40)
        assert queued["metadata"]["labels"][naming.SWEEP] == "llama-v1"
        assert queued["metadata"]["labels"][naming.WORKLOAD_PRIORITY] == "best-effort-training"


def test_a_priority_in_the_file_is_kept(tmp_path: Path) -> None:
    sweep = load(tmp_path, SWEPT | {"priority": "research-training"})
    assert {run.priority for run in sweep.runs.values()} == {"research-training"}


def test_submission_prepares_the_shared_dataset_once(tmp_path: Path) -> None:
    sweep = load(tmp_path, SWEPT)
    jobs = {
        manifest["metadata"]["name"]
        for run in sweep.runs.values()
        for manifest in job.submitted(run, platform(), "c" * 40)
        if manifest["metadata"]["name"].startswith("prepare-")
    }
    assert len(jobs) == 1


def test_equal_files_become_equal_runs_and_more_runs_are_added_at_the_end(tmp_path: Path) -> None:
    few = load(tmp_path / "a", SWEPT)
    again = load(tmp_path / "b", copy.deepcopy(SWEPT))
    more = load(tmp_path / "c", with_sweep(runs=6))
    assert list(again.runs) == list(few.runs)
    assert list(more.runs)[:4] == list(few.runs)


def test_grid_expands_to_all_combinations(tmp_path: Path) -> None:
    sweep = load(tmp_path, SWEPT | {"sweep": GRID})
    values = [tuple(trial.parameters.values()) for trial in sweep.state.trials]
    assert values == [(0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2)]
    assert {run.seed for run in sweep.runs.values()} == {1, 2}


def test_values_are_reported_at_every_rung(tmp_path: Path) -> None:
    sweep = load(tmp_path, with_sweep(method="asha", asha={"minSteps": 25}))
    for run in sweep.runs.values():
        assert run.config["report"]["metric_lines_every"] == 25


def test_parameters_of_a_program_of_its_own_are_its_variables(tmp_path: Path) -> None:
    program = {"launcher": "torchrun", "command": ["train.py"], "env": {"LR": "0.1"}}
    plain = {key: value for key, value in SWEPT.items() if key != "config"}
    swept = {"method": "grid", "parameters": {"env.LR": [0.5, 0.25]}, "metric": "accuracy"}
    sweep = load(tmp_path, plain | {"program": program, "sweep": swept})
    programs = [run.program for run in sweep.runs.values()]
    assert [one.env["LR"] for one in programs if one] == ["0.5", "0.25"]
    wrong = swept | {"parameters": {"env.LEARNING_RATE": [0.5]}}
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "wrong", plain | {"program": program, "sweep": wrong})
    path = "training/runs/llama.yaml: sweep.parameters.env.LEARNING_RATE: unknown-parameter"
    assert codes(caught.value) == [path]


def test_a_stack_does_not_deploy_a_sweep(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    write_runs(project, SWEPT)
    with pytest.raises(ConfigError) as caught:
        run_files.load(["llama"], platform(), {"trainer": IMAGE}, project)
    assert codes(caught.value) == ["training/runs/llama.yaml: sweep: sweep-in-stack"]


def test_the_state_survives_its_text(tmp_path: Path) -> None:
    state = load(tmp_path, SWEPT).state
    assert SweepState.from_json(state.to_json()) == state
    with pytest.raises(ValueError, match="not the state of a sweep"):
        SweepState.from_json('{"trials": []}')


def edited(**changes: Any) -> Callable[[Run], object]:
    return lambda run: run["sweep"].update(changes)


def parameter(name: str, values: Any) -> Callable[[Run], object]:
    return lambda run: run["sweep"]["parameters"].update({name: values})


BAD: dict[str, tuple[Callable[[Run], object], str]] = {
    "an unknown method": (edited(method="bayes"), "sweep.method: unknown-value"),
    "a misspelt setting": (
        parameter("optimizer.lerning_rate", [0.1]),
        "sweep.parameters.optimizer.lerning_rate: unknown-parameter",
    ),
    "a section instead of a setting": (
        parameter("optimizer", [0.1]),
        "sweep.parameters.optimizer: unknown-parameter",
    ),
    "one value without a list": (parameter("seed", 3), "sweep.parameters.seed: wrong-type"),
    "a value twice": (parameter("seed", [3, 3]), "sweep.parameters.seed: duplicate"),
    "an empty range": (
        parameter("seed", {"min": 2, "max": 2}),
        "sweep.parameters.seed: empty-range",
    ),
    "a logarithm of zero": (
        parameter("seed", {"min": 0, "max": 2, "scale": "log"}),
        "sweep.parameters.seed: empty-range",
    ),
    "a range without an end": (
        parameter("seed", {"min": 0}),
        "sweep.parameters.seed.max: missing",
    ),
    "an unknown metric": (edited(metric="los"), "sweep.metric: unknown-name"),
    "no runs": (edited(runs=0), "sweep.runs: out-of-range"),
    "samples without a number": (lambda run: run["sweep"].pop("runs"), "sweep.runs: missing"),
    "no parameters": (edited(parameters={}), "sweep.parameters: too-few"),
    "a range in a grid": (
        edited(method="grid"),
        "sweep.parameters.optimizer.learning_rate: range-in-grid",
    ),
    "a grid larger than its runs": (
        lambda run: run.update(sweep=GRID | {"runs": 3}),
        "sweep.runs: grid-too-large",
    ),
    "asha without its rungs": (edited(method="asha"), "sweep.asha: missing"),
    "rungs without asha": (edited(asha={"minSteps": 5}), "sweep.asha: asha-only"),
    "a budget below the cost of all runs": (
        edited(costCapUsd=1),
        "sweep.costCapUsd: above-cost-cap",
    ),
    "a budget without a time limit": (
        lambda run: (run.pop("maxHours"), run["sweep"].update(costCapUsd=1)),
        "sweep.costCapUsd: missing",
    ),
    "a value that the trainer refuses": (
        parameter("batch.micro_samples", [16, -2]),
        "config: batch.micro_samples: out-of-range",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_swept_is_one_issue(tmp_path: Path, name: str) -> None:
    edit, expected = BAD[name]
    document = copy.deepcopy(SWEPT)
    edit(document)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, document)
    check_issues("sweep", name, caught.value, expected)


def test_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    document = with_sweep(runs=0, metric="los", parameters={"optimizr.lr": [1]}) | {"nodes": 0}
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, document)
    assert {one.rpartition(": ")[0].rpartition(": ")[2] for one in codes(caught.value)} == {
        *("nodes", "sweep.runs", "sweep.metric", "sweep.parameters.optimizr.lr")
    }


def test_a_budget_of_asha_covers_one_run_at_least(tmp_path: Path) -> None:
    """What it submits beyond that depends on how soon runs end."""
    one = load(tmp_path / "a", SWEPT).state
    assert one.usd_per_hour is not None
    price = 2 * one.usd_per_hour
    asha = {"method": "asha", "asha": {"minSteps": 5}}
    assert load(tmp_path / "b", with_sweep(**asha, costCapUsd=price + 1)).state.cost_cap_usd
    with pytest.raises(ConfigError):
        load(tmp_path / "c", with_sweep(**asha, costCapUsd=price - 1))


def test_a_file_without_the_section_is_one_issue(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, RUN_FILE)
    assert codes(caught.value) == ["training/runs/llama.yaml: no-sweep"]


def test_the_committed_sweep_fits_the_local_stack() -> None:
    from ops.sweep import submission as submits

    file = Path(__file__).resolve().parents[3] / "training/runs/sweep.yaml"
    found = submits.load(file, "local")
    assert len(found.state.trials) == yaml.safe_load(file.read_text())["sweep"]["runs"]
    assert found.asha is not None
