"""Runs whose queue is the trouble."""

from __future__ import annotations

from typing import Any

import pytest

from ops.symptoms import explain
from tests.unit.ops.run_fixtures import (
    NOW,
    cluster_queue,
    condition,
    local_queue,
    run,
    snapshot,
    waits,
    workload,
)
from tests.unit.snapshots import Text


def test_a_run_without_a_queue_is_never_admitted() -> None:
    unlabelled = run()
    unlabelled["metadata"]["labels"].pop("kueue.x-k8s.io/queue-name")
    assert explain(snapshot(run=unlabelled)).symptom == "no-queue"


def test_a_queue_that_does_not_exist_is_named(text: Text) -> None:
    verdict = explain(snapshot(local_queue=None, cluster_queue=None))
    text(verdict.headline)
    verdict = explain(snapshot(cluster_queue=None))


def test_an_unreadable_queue_is_not_reported_missing(text: Text) -> None:
    hidden = frozenset({"clusterqueues"})
    mine = workload(waits("couldn't assign: insufficient unused quota for nvidia.com/gpu"))
    taken = snapshot(cluster_queue=None, cluster_queues=[], hidden=hidden, workload=mine)
    verdict = explain(taken)
    assert verdict.symptom == "quota-exhausted"
    text(verdict.evidence[0])


def test_an_unreadable_local_queue_is_not_reported_missing() -> None:
    hidden = frozenset({"localqueues", "clusterqueues"})
    nothing: dict[str, Any] = {"local_queue": None, "cluster_queue": None, "cluster_queues": []}
    assert explain(snapshot(workload=workload(waits("")), **nothing)).symptom == "queue-missing"
    taken = snapshot(workload=workload(waits("")), hidden=hidden, **nothing)
    assert explain(taken).symptom == "queued"


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_queue_includes_the_command_to_resume_it(policy: str, text: Text) -> None:
    stopped = cluster_queue(spot=16, stop=policy)
    verdict = explain(snapshot(cluster_queue=stopped, workload=workload(waits())))
    assert verdict.symptom == "queue-held"
    text(verdict.evidence)
    text(verdict.remedy[0])


def test_a_stopped_local_queue_is_resumed_manually(text: Text) -> None:
    verdict = explain(snapshot(local_queue=local_queue("Hold"), workload=workload(waits())))
    assert verdict.symptom == "queue-held"
    text(verdict.remedy[0])


def test_a_queue_with_missing_references_is_inactive(text: Text) -> None:
    broken = cluster_queue(spot=16)
    why = condition("Active", "False", "FlavorNotFound", "flavor spot is not found")
    broken["status"]["conditions"] = [why]
    verdict = explain(snapshot(cluster_queue=broken, workload=workload(waits())))
    assert verdict.symptom == "queue-inactive"
    text(verdict.evidence[0])


def test_a_queue_of_another_team_is_closed() -> None:
    mine = workload(waits("Workload namespace doesn't match ClusterQueue selector"))
    assert explain(snapshot(workload=mine)).symptom == "queue-closed"


def test_a_run_without_workload_is_new_or_kueue_is_down(text: Text) -> None:
    old = explain(snapshot())
    assert old.symptom == "kueue-silent"
    text(old.headline)
    new = run()
    new["metadata"]["creationTimestamp"] = NOW.isoformat()
    assert explain(snapshot(run=new)).symptom == "just-created"


def test_kinds_that_kueue_does_not_queue_are_reported() -> None:
    assert explain(snapshot(run=run(spec={}))).symptom == "not-queued"
    suspended = run(kind="MPIJob", spec={"runPolicy": {"suspend": True}})
    assert explain(snapshot(run=suspended)).symptom == "kueue-silent"
