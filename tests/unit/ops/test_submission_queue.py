"""What `trainyard run submit` says of the queue, without a cluster."""

from __future__ import annotations

from typing import cast

from infra.domain import naming
from ops.cluster import Cluster
from ops.objects import Json
from ops.submission import queue_place
from tests.unit.ops.test_ops_commands import FakeCluster

RUN: Json = {
    "metadata": {
        "name": "llama-v1-01234567",
        "namespace": "team-research",
        "uid": "u1",
        "labels": {naming.QUEUE_NAME: "research"},
    }
}
WHY = "trainyard run why llama-v1-01234567 explains why it waits"


def workload(uid: str, priority: int, second: int, queue: str = "research", done: str = "") -> Json:
    return {
        "kind": "Workload",
        "metadata": {
            "name": f"job-{uid}",
            "namespace": "team-research",
            "labels": {"kueue.x-k8s.io/job-uid": uid},
            "creationTimestamp": f"2026-01-01T00:00:{second:02}Z",
        },
        "spec": {"queueName": queue, "priority": priority},
        "status": {"conditions": [{"type": done, "status": "True"}] if done else []},
    }


def line(*workloads: Json) -> str:
    cluster = cast(Cluster, FakeCluster(workloads=list(workloads)))
    return queue_place.queue_line(cluster, RUN, lambda _: None)


def test_the_place_is_by_priority_then_time_among_what_waits_in_the_queue() -> None:
    others = (
        workload("older", 10, 1),
        workload("later", 10, 9),
        workload("urgent", 50, 9),
        workload("started", 90, 1, done="QuotaReserved"),
        workload("elsewhere", 90, 1, queue="dev"),
    )
    expected = f"queue research: place 3 of 4 that wait; {WHY}"
    assert line(*others, workload("u1", 10, 5)) == expected


def test_an_admitted_run_does_not_wait() -> None:
    assert line(workload("u1", 10, 5, done="Admitted")) == "queue research: admitted"


def test_without_a_workload_nothing_is_claimed() -> None:
    unknown = f"queue research: place not known; {WHY}"
    assert line(workload("older", 10, 1)) == unknown


def test_a_workload_that_comes_late_is_awaited() -> None:
    cluster = FakeCluster(workloads=[])

    def sleep(_: float) -> None:
        cluster._items["workloads"] = [workload("u1", 10, 5)]

    text = queue_place.queue_line(cast(Cluster, cluster), RUN, sleep)
    assert "place 1 of 1 that wait" in text


def test_a_run_without_a_queue_waits_for_nodes() -> None:
    run = {"metadata": {"name": "a", "namespace": "team-research"}}
    assert "has no queue" in queue_place.queue_line(cast(Cluster, FakeCluster()), run)
