"""`trainyard run list`: states, places in the queue, progress, and what a role may not see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.domain import naming
from ops import metrics
from ops.cluster import Kind, UnreachableError, context_namespace
from ops.objects import Json
from ops.runs import columns, following, list_command, log_progress, states
from ops.runs.gangs import attempt_of
from ops.runs.listing import Listing, read_listing, summary_of
from tests.unit.ops.conftest import Cli
from tests.unit.ops.run_fixtures import (
    NOW,
    RUN_ID,
    at,
    condition,
    ended,
    pod,
    run,
    runs_on,
    snapshot,
    waits,
    workload,
)
from tests.unit.ops.test_ops_commands import FakeCluster
from tests.unit.snapshots import Text

AT_120: Json = {"metric": {"run_id": RUN_ID}, "value": [0, "120"]}
PROMETHEUS = json.dumps({"status": "success", "data": {"result": [AT_120]}})
"""The run has 120 of everything that is measured."""


def another(name: str, *, age_s: float = 100, **changes: Any) -> Json:
    """A run of its own name, with a uid that is its id."""
    found = run(**changes)
    run_id = f"{name}-v1-bbbbbbbb"
    labels = found["metadata"]["labels"] | {naming.RUN: name, naming.RUN_ID: run_id}
    found["metadata"] = found["metadata"] | {
        "name": run_id,
        "uid": run_id,
        "labels": labels,
        "creationTimestamp": at(age_s),
    }
    return found


def of(one: Json, *conditions: Json, **more: Any) -> Json:
    """The Workload of such a run."""
    name = one["metadata"]["name"]
    return workload(*conditions, run_id=name, uid=name, **more)


def pod_of(one: Json, name: str, phase: str = "Running", **status: Any) -> Json:
    found = pod(name, phase, **status)
    found["metadata"]["labels"] = found["metadata"]["labels"] | {
        naming.RUN_ID: one["metadata"]["name"]
    }
    return found


def every_state() -> FakeCluster:
    """A cluster with a run in each state."""
    first, second = another("first", age_s=90), another("second", age_s=80)
    starting = another("starting", age_s=70)
    stopping = another("stopping", age_s=60)
    stopping["metadata"]["deletionTimestamp"] = at(5)
    stopped = another("stopped", age_s=50)
    finished = another("finished", age_s=40, status={"conditions": [condition("Completed")]})
    failed = another(
        "failed", age_s=30, status={"conditions": [condition("Failed", message="exit code 78")]}
    )
    admitted = [condition("QuotaReserved"), condition("Admitted")]
    gone = condition("Evicted", reason="Deactivated", message="exceeded the maximum execution time")
    restarted = run(status={"restarts": 2})
    cluster = FakeCluster(
        jobsets=[restarted, first, second, starting, stopping, stopped, finished, failed],
        workloads=[
            runs_on(),
            of(first, waits(), age_s=90),
            of(second, waits(), age_s=80, priority=2000),
            of(starting, *admitted, flavor="spot"),
            of(stopped, gone, active=False),
        ],
        pods=[pod("a"), pod("b"), pod_of(starting, "c"), pod_of(starting, "d", "Pending")],
    )
    cluster.texts["prometheus-operated"] = PROMETHEUS
    return cluster


def listed(cluster: FakeCluster, namespace: str | None = None) -> Listing:
    return read_listing(cluster, namespace)  # type: ignore[arg-type]


def test_table(monkeypatch: pytest.MonkeyPatch, cli: Cli, text: Text) -> None:
    monkeypatch.setattr(list_command, "_now", lambda: NOW)
    assert cli(every_state(), "run", "list") == 0
    text(cli.out)


def test_json_names_the_fields_that_scripts_read(cli: Cli) -> None:
    assert cli(every_state(), "run", "list", "--json", "--state", "running") == 0
    answer = json.loads(cli.out)
    [one] = answer["runs"]
    assert (one["run_id"], one["attempt"], one["nodes"], one["ready"]) == (
        *("hello-v1-aaaaaaaa", 3),
        *(2, 2),
    )
    assert one["progress"]["step"] == 120
    assert (answer["hidden"], answer["gap"]) == ([], "")


def evicted(times: int, when: float, *, admitted: bool) -> Json:
    """The Workload of a run that was evicted so often, and is admitted again or waits, since `when` seconds."""
    back = condition("Evicted", "False" if admitted else "True", reason="Preempted")
    back["lastTransitionTime"] = at(when)
    stats = {"evictions": [{"reason": "Preempted", "count": times}]}
    if admitted:
        return runs_on("spot", back, schedulingStats=stats)
    return workload(waits(), back, schedulingStats=stats)


def test_list_and_pods_count_the_same_attempts_whatever_is_measured() -> None:
    """A pod outlasts its eviction; metrics of the ranks, which have another count, come and go."""
    first, second, third, fourth = (pod(f"hello-{n}") for n in range(4))
    third["metadata"]["labels"] |= {states.RESTART_ATTEMPT: "1"}
    fourth["metadata"]["labels"] |= {states.RESTART_ATTEMPT: "1"}
    for one, age in ((first, 290), (second, 190), (third, 140), (fourth, 80)):
        one["metadata"]["creationTimestamp"] = at(age)
    restarted, over = {"restarts": 1}, {"restarts": 1, "conditions": [condition("Completed")]}
    course = [
        ({}, runs_on(), first, 1),
        ({}, evicted(1, 250, admitted=False), first, 1),
        ({}, evicted(1, 200, admitted=True), second, 2),
        (restarted, evicted(1, 200, admitted=True), third, 3),
        (restarted, evicted(2, 100, admitted=False), third, 3),
        (restarted, evicted(2, 90, admitted=True), fourth, 4),
        (over, evicted(2, 90, admitted=True), fourth, 4),
    ]
    for status, mine, last, attempt in course:
        cluster = FakeCluster(jobsets=[run(status=status)], workloads=[mine], pods=[last])
        for measured in (True, False):
            cluster.texts["prometheus-operated"] = PROMETHEUS if measured else ""
            prometheus = metrics.connect("", cluster)  # type: ignore[arg-type]
            found = read_listing(cluster, None, prometheus)  # type: ignore[arg-type]
            assert found.runs[0].attempt == attempt
        now = snapshot(run=run(status=status), workloads=[mine], pods=[last])
        assert (attempt_of(now, last), summary_of(now).attempt) == (attempt, attempt)


def test_a_run_that_has_ended_was_started_also_when_its_workload_is_gone() -> None:
    one = run(status={"restarts": 1, "conditions": [condition("Completed")]})
    assert listed(FakeCluster(jobsets=[one])).runs[0].attempt == 2


class CountingCluster(FakeCluster):
    """Counts lists."""

    requests = 0

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        self.requests += 1
        return super().items(kind, namespace, selector)


def test_without_prometheus_progress_is_read_from_the_log_of_rank_0() -> None:
    cluster = FakeCluster(jobsets=[run()], workloads=[runs_on()], pods=[pod("hello-0")])
    cluster.texts["/pods/hello-0/log"] = "2026-11-21T11:59:00Z step 7/20  loss 5.0  3 tokens/s"
    found = read_listing(cluster, None, metrics.connect("", cluster))  # type: ignore[arg-type]
    assert (found.runs[0].progress.step, found.runs[0].progress.steps) == (7, 20)
    assert found.gap.startswith("no metrics: no Prometheus")


def test_an_ended_run_has_the_progress_of_its_log() -> None:
    finished = another("finished", status={"conditions": [condition("Completed")]})
    failed = another("failed", status={"conditions": [condition("Failed")]})
    pods = [
        pod_of(finished, "finished-0", "Succeeded", **ended(0)),
        pod_of(failed, "failed-0", "Failed", **ended(1)),
    ]
    cluster = FakeCluster(jobsets=[finished, failed], pods=pods)
    for name in ("finished-0", "failed-0"):
        cluster.texts[f"/pods/{name}/log"] = "2026-11-21T11:59:00Z step 990/1000  loss 4.25"
    found = read_listing(cluster, None, metrics.connect("", cluster))  # type: ignore[arg-type]
    told = {one.name: (one.progress.step, one.progress.loss) for one in found.runs}
    assert told == {"finished": (1000, 4.25), "failed": (990, 4.25)}


def test_a_finished_run_whose_pods_are_gone_shows_its_planned_steps() -> None:
    finished = another("finished", status={"conditions": [condition("Completed")]})
    name = finished["metadata"]["name"]
    data = {"run.json": "{}", "trainer.yaml": "steps: 1000"}
    where = {"name": name, "namespace": "team-research"}
    recorded: Json = {"kind": "ConfigMap", "metadata": where, "data": data}
    cluster = FakeCluster(jobsets=[finished], configmaps=[recorded])
    found = read_listing(cluster, None, metrics.connect("", cluster))  # type: ignore[arg-type]
    assert columns.lines(found, NOW)[1].split()[:5] == [
        name,
        "finished",
        "research",
        "-",
        "1000/1000",
    ]


def test_logs_of_running_runs_are_read_before_those_of_ended_ones() -> None:
    running = [pod_of(another(f"running-{n}"), f"running-{n}") for n in range(3)]
    done = [pod_of(another(f"done-{n}"), f"done-{n}", "Succeeded") for n in range(20)]
    for one in running:
        one["metadata"]["creationTimestamp"] = at(9000)
    cluster = FakeCluster()
    cluster.texts["/log"] = "2026-11-21T11:59:00Z step 7/20"
    found = log_progress.read_progress(cluster, [*done, *running])  # type: ignore[arg-type]
    assert len(found) == log_progress.RUNS_MAX
    assert {f"running-{n}-v1-bbbbbbbb" for n in range(3)} <= set(found)


def test_requests_do_not_grow_with_the_number_of_runs() -> None:
    counts = []
    for number in (1, 300):
        runs = [another(f"run-{one}") for one in range(number)]
        workloads = [of(one, waits()) for one in runs]
        cluster = CountingCluster(jobsets=runs, workloads=workloads)
        assert len(listed(cluster).runs) == number
        counts.append(cluster.requests)
    assert counts[0] == counts[1]


def test_a_role_that_may_not_read_workloads_is_told(cli: Cli, text: Text) -> None:
    cluster = FakeCluster(("workloads",), jobsets=[run()], pods=[pod("a", "Failed", **ended(1))])
    assert cli(cluster, "run", "list") == 0
    text(cli.err)


def test_a_team_role_lists_the_namespace_of_its_context(
    cli: Cli, tmp_path: Path, text: Text
) -> None:
    cluster = FakeCluster(("jobsets", "jobs"), jobsets=[run()], workloads=[runs_on()])
    path = tmp_path / "config"
    where = {"cluster": "c", "user": "u", "namespace": "team-research"}
    elsewhere = {"cluster": "c", "user": "u"}
    config = {
        "contexts": [{"name": "a", "context": where}, {"name": "b", "context": elsewhere}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "a",
    }
    path.write_text(yaml.safe_dump(config))
    assert cli(cluster, "run", "list", "--kubeconfig", str(path)) == 0
    assert "hello-v1-aaaaaaaa" in cli.out
    assert cli(cluster, "run", "list", "--kubeconfig", str(path), "--context", "b") == 2
    text(cli.err)
    assert context_namespace(tmp_path / "none") == ""


def test_a_lost_connection_is_said_once_and_does_not_end_a_watch() -> None:
    said: list[str] = []
    pauses: list[float] = []
    answers: list[Any] = [UnreachableError("no answer")] * 6 + ["runs"]

    def read() -> str:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return str(found)

    assert following.read_again(read, said.append, pauses.append) == "runs"
    assert said == [
        "connection lost: no answer; trying again until it is back (Ctrl-C ends)",
        "connected again",
    ]
    assert pauses == [2, 4, 8, 16, 30, 30]
