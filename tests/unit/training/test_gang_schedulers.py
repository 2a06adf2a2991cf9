"""Runs under each scheduler: one gang, in the team's queue, and what cannot work is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.config import ConfigError, ConfigIssue
from infra.domain.platform import Platform
from infra.domain.scheduler import Scheduler
from tests.golden.example_runs import (
    IMAGE,
    LAUNCHERS,
    RUN_FILE,
    platform_of,
    project_in,
    run,
    run_of,
    scheduler_values,
    write_runs,
)
from tests.unit.training.pods import templates
from training import run_files
from training.job import manifests

OTHERS = [s for s in Scheduler if s is not Scheduler.KUEUE]

GOOD = RUN_FILE | {"jobKind": "indexed-job"}


def suited(scheduler: Scheduler) -> list[str]:
    """Launchers that the scheduler can hold together."""
    return [name for name in LAUNCHERS if name not in scheduler.unsupported_launchers]


EVERY = [(scheduler, launcher) for scheduler in OTHERS for launcher in suited(scheduler)]


def rendered(launcher: str, on: Platform, **changes: Any) -> list[dict[str, Any]]:
    """Manifests of the example run, which has no time limit here."""
    return manifests(run_of(launcher, max_hours=None, **changes), on, "c" * 40)


@pytest.mark.parametrize(("scheduler", "launcher"), EVERY)
def test_without_kueue_nothing_of_a_run_names_a_queue_of_kueue(
    scheduler: Scheduler, launcher: str
) -> None:
    assert "kueue.x-k8s.io" not in json.dumps(rendered(launcher, platform_of(scheduler)))


def test_a_single_pod_has_no_native_gang() -> None:
    found = rendered("job", platform_of(Scheduler.NATIVE))
    assert "PodGroup" not in [m["kind"] for m in found]
    assert all("schedulingGroup" not in pod["spec"] for pod in templates(found))


@pytest.mark.parametrize("scheduler", OTHERS)
def test_pods_prefer_the_capacity_of_their_tier_where_no_queue_does(scheduler: Scheduler) -> None:
    first = {"research": "spot", "production": "ondemand"}
    for tier, pool in first.items():
        on = platform_of(scheduler)
        found = rendered("indexed-job", on, team=tier, tier=tier)
        [pod] = templates(found)
        [wish] = pod["spec"]["affinity"]["nodeAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        assert wish["preference"]["matchExpressions"][0]["values"] == [pool]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one trainer configuration."""
    return project_in(tmp_path)


def issues(project: Path, on: Platform, *documents: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return path and code of each issue of a run file, without the file's name."""
    write_runs(project, *documents)
    try:
        run_files.load(("llama",), on, {"trainer": IMAGE}, project)
    except ConfigError as error:
        found = [issue for issue in error.issues if isinstance(issue, ConfigIssue)]
        assert len(found) == len(error.issues)
        prefix = "training/runs/llama.yaml"
        return [(one.path.removeprefix(prefix).lstrip(": "), one.code) for one in found]
    return []


@pytest.mark.parametrize("scheduler", Scheduler)
def test_a_gang_of_plain_jobs_runs_under_every_scheduler(
    project: Path, scheduler: Scheduler
) -> None:
    assert issues(project, platform_of(scheduler), GOOD) == []


@pytest.mark.parametrize("launcher", Scheduler.NATIVE.unsupported_launchers)
def test_launchers_whose_objects_drop_the_group_are_refused(project: Path, launcher: str) -> None:
    refused = issues(project, platform_of(Scheduler.NATIVE), GOOD | {"jobKind": launcher})
    assert refused == [("jobKind", "unsupported-kind")]
    assert issues(project, platform_of(Scheduler.VOLCANO), GOOD | {"jobKind": launcher}) == []


def test_an_unenforced_time_limit_is_rejected(project: Path) -> None:
    limited = GOOD | {"maxHours": 12}
    assert issues(project, platform_of(Scheduler.KUEUE), limited) == []
    refused = issues(project, platform_of(Scheduler.YUNIKORN), limited)
    assert refused == [("maxHours", "kueue-only")]


def test_a_gang_over_efa_is_not_left_to_two_zones(project: Path) -> None:
    pools = copy.deepcopy(scheduler_values(Scheduler.VOLCANO)["nodePools"])
    pools[1]["zone"] = "us-east-1b"
    assert issues(project, platform_of(Scheduler.KUEUE, nodePools=pools), GOOD) == []
    apart = platform_of(Scheduler.VOLCANO, nodePools=pools)
    assert issues(project, apart, GOOD | {"allowSpot": False}) == []
    assert issues(project, apart, GOOD) == [("nodes", "several-zones")]


def test_runs_that_do_not_fit_their_quota_together_need_a_queue(project: Path) -> None:
    runs = [GOOD | {"version": version} for version in (1, 2, 3)]
    assert issues(project, platform_of(Scheduler.NATIVE), *runs[:2]) == []
    assert issues(project, platform_of(Scheduler.VOLCANO), *runs) == []
    refused = issues(project, platform_of(Scheduler.NATIVE), *runs)
    assert refused == [("document 3", "quota-exceeded")]


def test_a_run_keeps_its_id_whatever_schedules_it() -> None:
    names = {
        rendered("indexed-job", platform_of(scheduler))[-1]["metadata"]["name"]
        for scheduler in Scheduler
    }
    assert names == {run(job_kind="indexed-job", max_hours=None).run_id}
