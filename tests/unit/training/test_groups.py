"""Runs of replica groups: their run files, and an object for each group."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from infra.config import ConfigError
from infra.domain.platform import Platform
from infra.domain.scheduler import Scheduler
from tests.golden import example_runs
from tests.golden.example_runs import IMAGE, RUN_FILE, platform, platform_of, project_in, write_runs
from tests.unit.infra.config_issues import codes
from tests.unit.training.config_issues import check_issues, edited
from training import placement, run_files
from training.spec import Groups, RunSpec

Run = dict[str, Any]

GROUPED: Run = RUN_FILE | {
    "nodes": 1,
    "gpusPerNode": 1,
    "groups": {"min": 1, "max": 3},
    "resources": {"cpu": "8", "memory": "64Gi", "shm": "8Gi"},
}


def stack(**changes: Any) -> Platform:
    return dataclasses.replace(platform(), releases_groups=True, **changes)


def load(folder: Path, document: Run, on: Platform | None = None) -> RunSpec:
    project = project_in(folder)
    write_runs(project, document)
    [run] = run_files.load(["llama"], on or stack(), {"trainer": IMAGE}, project)
    return run


def test_the_trainer_divides_a_step_of_a_run_with_groups_over_logical_workers(
    tmp_path: Path,
) -> None:
    run = load(tmp_path, GROUPED | {"overrides": {"groups": {"workers": 4}}})
    assert run.groups == Groups(min=1, max=3)
    assert run.config["groups"] == {"workers": 4}
    assert load(tmp_path / "other", GROUPED).config["groups"] == {"workers": 8}
    assert run.record(stack="x", git_commit="y")["groups"] == {
        "min": 1,
        "max": 3,
        "spares": 0,
        "on_demand": None,
    }


def test_groups_are_part_of_a_runs_id_and_their_absence_is_not() -> None:
    plain, other = example_runs.run(), example_runs.run(groups=Groups(max=3))
    assert plain.spec_hash == example_runs.run(groups=None).spec_hash
    assert other.spec_hash != plain.spec_hash
    assert other.spec_hash != example_runs.run(groups=Groups(max=4)).spec_hash
    assert {gang.run_id for gang in other.gangs()} == {other.run_id}
    assert "groups" not in plain.record(stack="x", git_commit="y")


def test_on_demand_groups_never_run_on_spot_and_the_others_nowhere_else() -> None:
    run = example_runs.run(groups=Groups(max=3, on_demand=1))
    pools = [[p.name for p in placement.eligible_pools(g, platform())] for g in run.gangs()]
    assert pools == [["ondemand"], ["spot"], ["spot"]]
    either = example_runs.run(groups=Groups(max=2))
    pools = [[p.name for p in placement.eligible_pools(g, platform())] for g in either.gangs()]
    assert pools == [["spot", "ondemand"]] * 2


def test_the_cost_of_a_run_is_that_of_all_its_groups() -> None:
    def price(groups: Groups | None) -> float:
        run = example_runs.run(groups=groups)
        usd = placement.usd_per_hour(run, placement.eligible_pools(run, platform()))
        assert usd is not None
        return usd

    gang = price(None)
    assert price(Groups(max=3)) == pytest.approx(3 * gang)
    assert price(Groups(max=2, spares=1)) == pytest.approx(3 * gang)
    assert gang < price(Groups(max=3, on_demand=1)) < 3 * gang


BAD: list[tuple[str, dict[str, Any], str]] = [
    (
        "more groups needed than allowed",
        {"groups": {"min": 4, "max": 3}},
        "groups.min: out-of-range",
    ),
    ("no groups", {"groups": {"max": 0}}, "groups.max: out-of-range"),
    ("groups without a number", {"groups": {"min": 1}}, "groups.max: missing"),
    (
        "more groups than logical workers",
        {"overrides": {"groups": {"workers": 2}}},
        "config: groups.workers: out-of-range",
    ),
    (
        "logical workers without groups",
        {"groups": ..., "overrides": {"groups": {"workers": 2}}},
        "config: groups.workers: conflict",
    ),
    (
        "groups of a kind that restarts pods one by one",
        {"jobKind": "job"},
        "groups: kind-without-groups",
    ),
    (
        "groups of a program whose launcher knows none",
        {"config": ..., "program": {"launcher": "deepspeed", "command": ["/opt/train.py"]}},
        "program.launcher: launcher-without-groups",
    ),
    (
        "a division of groups without spot",
        {"allowSpot": False, "groups": {"max": 2, "onDemand": 1}},
        "groups.onDemand: conflict",
    ),
    (
        "more on-demand groups than groups",
        {"groups": {"max": 2, "onDemand": 3}},
        "groups.onDemand: out-of-range",
    ),
    (
        "more groups than the quota",
        {"groups": {"max": 33}, "overrides": {"groups": {"workers": 64}}},
        "groups.max: quota-exceeded",
    ),
    (
        "too little for the cost of all groups",
        {"maxHours": 1, "costCapUsd": 40},
        "costCapUsd: above-cost-cap",
    ),
    ("a name too long for groups", {"name": "a" * 31}, "name: name-too-long"),
]


@pytest.mark.parametrize(("name", "changes", "expected"), BAD, ids=[row[0] for row in BAD])
def test_what_cannot_be_is_one_issue_each(
    tmp_path: Path, name: str, changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, edited(GROUPED, changes))
    check_issues("groups", name, caught.value, expected)


@pytest.mark.parametrize(
    ("nodes", "issue"), [(2, ""), (1, "groups.max: share-too-small"), (0, "nodes: share-too-small")]
)
def test_all_groups_must_fit_the_teams_share_of_their_pools(
    nodes: int, issue: str, tmp_path: Path
) -> None:
    research = platform().teams["research"]
    share = dataclasses.replace(research, most_nodes={"ondemand": nodes, "spot": 20})
    on = stack(teams={"research": share})
    document = GROUPED | {"groups": {"max": 12, "onDemand": 9}}
    document |= {"overrides": {"groups": {"workers": 16}}}
    if not issue:
        assert load(tmp_path, document, on)
        return
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, document, on)
    check_issues("groups", f"on-demand groups with {nodes} nodes", caught.value, issue)


def test_a_stack_that_lets_no_group_go_has_no_groups(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, GROUPED, platform())
    check_issues("groups", "a stack without elasticRuns", caught.value, "groups: section-required")


@pytest.mark.parametrize("scheduler", [s for s in Scheduler if s is not Scheduler.KUEUE])
def test_only_kueue_admits_groups(scheduler: Scheduler, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, GROUPED, platform_of(scheduler))
    assert "training/runs/llama.yaml: groups: kueue-only" in codes(caught.value)


def test_groups_need_gpus_of_one_model(tmp_path: Path) -> None:
    mixed = [
        dataclasses.replace(p, instance_types=("p4d.24xlarge", "p5.48xlarge"))
        for p in platform().pools[:1]
    ]
    on = stack(pools=(*mixed, *platform().pools[1:]))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, GROUPED, on)
    assert codes(caught.value) == ["training/runs/llama.yaml: gpuModel: mixed-gpus"]
    assert load(tmp_path / "named", GROUPED | {"gpuModel": "a100"}, on)
