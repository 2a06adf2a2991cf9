"""Resources and example run under each scheduler other than Kueue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.cli.render import ROOT, render
from infra.domain.scheduler import DEFAULT_SCHEDULER, Scheduler
from infra.queueing.backends import backend
from tests import committed
from tests.golden.conftest import Compare
from tests.golden.example_runs import platform, platform_of, run_of, scheduler_values
from tests.golden.manifest_files import difference_of_run
from training.job import manifests

_RUNS = {
    **{one: "indexed-job" for one in Scheduler if one is not DEFAULT_SCHEDULER},
    Scheduler.VOLCANO: "jobset",
    Scheduler.YUNIKORN: "mpijob",
}


def stack(scheduler: Scheduler) -> list[dict[str, Any]]:
    """The example stack's resources; it installs its scheduler where that can be installed."""
    values = scheduler_values(scheduler)
    operator = backend(scheduler).operator
    if operator:
        values["operators"][operator] = {"provided": False}
    return render("example", values)


def concerned(record: dict[str, Any]) -> bool:
    """Whether a resource depends on the scheduler."""
    name: str = record["name"]
    about = name.startswith(("operators", "priorities", "queues")) or name.endswith("-quota")
    return about and bool(record["inputs"])


@pytest.mark.parametrize("scheduler", _RUNS)
def test_each_scheduler_renders_its_committed_resources(
    scheduler: Scheduler, golden: Compare
) -> None:
    golden(f"schedulers/{scheduler}-stack.yaml", list(filter(concerned, stack(scheduler))))


@pytest.mark.parametrize(("scheduler", "launcher"), _RUNS.items())
def test_each_scheduler_changes_a_run_as_committed(
    scheduler: Scheduler, launcher: str, golden: Compare
) -> None:
    runs = run_of(launcher), run_of(launcher, max_hours=None)
    platforms = platform(), platform_of(scheduler)
    of_kueue, found = (manifests(r, p, "c" * 40) for r, p in zip(runs, platforms, strict=True))
    difference = difference_of_run(runs[0].run_id, of_kueue, runs[1].run_id, found)
    golden(f"schedulers/{scheduler}-{launcher}.yaml", [difference])


@pytest.mark.parametrize("scheduler", _RUNS)
def test_stack_without_kueue_has_no_kueue_objects(scheduler: Scheduler) -> None:
    assert [r["type"] for r in stack(scheduler) if "kueue" in r["type"].lower()] == []


def test_stack_with_kueue_has_kueue_objects() -> None:
    kinds = {
        r["type"].rpartition(":")[2] for r in render("example", scheduler_values(Scheduler.KUEUE))
    }
    assert {"ClusterQueue", "LocalQueue", "WorkloadPriorityClass", "ResourceFlavor"} <= kinds


@pytest.mark.parametrize("scheduler", [Scheduler.VOLCANO, Scheduler.YUNIKORN])
def test_run_depends_on_its_queue(scheduler: Scheduler, tmp_path: Path) -> None:
    hello = yaml.safe_load((ROOT / "training/runs/hello.yaml").read_text())
    # Only Kueue stops a run after its maximum run time.
    unlimited = {k: v for k, v in hello.items() if k not in ("maxHours", "costCapUsd")}
    file = tmp_path / "hello.yaml"
    file.write_text(yaml.safe_dump(unlimited))
    values = committed.local_on_queueing_cluster() | {"runs": [str(file)]}
    operators = {name: one for name, one in values["operators"].items() if name != "kueue"}
    values |= {"scheduler": scheduler.value, "operators": operators}
    values["operators"][backend(scheduler).operator] = {"provided": True}
    found = render("local", values)
    queues = {f"{r['type']}::{r['name']}" for r in found if r["parent"].endswith("::queues")}
    [run] = [r for r in found if r["type"] == "trainyard:training:TrainingJob"]
    assert queues and queues <= set(run["dependsOn"])
