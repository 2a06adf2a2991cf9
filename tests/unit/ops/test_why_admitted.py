"""Why an admitted run does not train, or that it does."""

from __future__ import annotations

import pytest

from infra.domain import naming
from ops.objects import Json
from ops.symptoms import SYMPTOMS, explain
from tests.unit.ops.run_fixtures import (
    condition,
    ended,
    event,
    pod,
    run,
    runs_on,
    snapshot,
    waiting,
)
from tests.unit.snapshots import Text


def test_a_complete_gang_trains(text: Text) -> None:
    verdict = explain(snapshot(workload=runs_on(), pods=[pod("a"), pod("b")]))
    assert verdict.symptom == "running"
    text(verdict.headline)


def test_an_incomplete_gang_does_not_train(text: Text) -> None:
    verdict = explain(snapshot(workload=runs_on(), pods=[pod("a"), pod("b", "Pending")]))
    assert verdict.symptom == "not-ready"
    text(verdict.headline)


def test_a_gang_with_missing_pods_does_not_train() -> None:
    assert explain(snapshot(workload=runs_on(), pods=[pod("a")])).symptom == "not-ready"


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_an_image_that_cannot_be_pulled_is_named(reason: str, text: Text) -> None:
    stuck = pod("a", "Pending", **waiting(reason, "no such manifest"))
    verdict = explain(snapshot(workload=runs_on(), pods=[stuck]))
    assert verdict.symptom == "image"
    text(verdict.evidence)


def test_a_missing_secret_quotes_the_kubelet(text: Text) -> None:
    stuck = pod("a", "Pending", **waiting("CreateContainerConfigError", 'secret "x" not found'))
    verdict = explain(snapshot(workload=runs_on(), pods=[stuck]))
    assert verdict.symptom == "setup"
    text(verdict.evidence[0])


def test_a_volume_that_cannot_be_mounted_is_reported(text: Text) -> None:
    stuck = pod("a", "Pending", **waiting("ContainerCreating"))
    failed = event(stuck, "FailedMount", 'configmap "hello" not found')
    verdict = explain(snapshot(workload=runs_on(), pods=[stuck], events=[failed]))
    assert verdict.symptom == "setup"
    text(verdict.evidence)
    assert explain(snapshot(workload=runs_on(), pods=[stuck])).symptom == "not-ready"


def test_rejected_jobs_quote_the_rejection() -> None:
    refusal = event(run(), "JobCreationFailed", "jobs is forbidden: exceeded quota")
    verdict = explain(snapshot(workload=runs_on(), events=[refusal]))
    assert verdict.symptom == "pods-refused"


def test_rejected_pods_quote_the_rejection(text: Text) -> None:
    job = {"kind": "Job", "metadata": {"name": "hello-worker-0", "uid": "j"}, "status": {}}
    refusal = event(job, "FailedCreate", "pods is forbidden: exceeded quota")
    taken = snapshot(workload=runs_on(), jobs=[job], events=[refusal])
    verdict = explain(taken)
    assert verdict.symptom == "pods-refused"
    text(verdict.evidence)
    # Later the pods could be made after all.
    with_pods = snapshot(workload=runs_on(), jobs=[job], events=[refusal], pods=[pod(), pod("b")])
    assert explain(with_pods).symptom == "running"


def test_a_failed_attempt_is_reported_until_the_next_one_trains(text: Text) -> None:
    status = {"restarts": 1, "restartsCountTowardsMax": 1}
    failed = pod("a", "Failed", **ended(1))
    verdict = explain(snapshot(run=run(status=status), workload=runs_on(), pods=[failed]))
    assert verdict.symptom == "restarting"
    text(verdict.headline)
    again = snapshot(workload=runs_on(), pods=[failed, pod("b"), pod("c")])
    assert explain(again).symptom == "running"


def test_an_attempt_that_saved_and_stopped_is_not_a_failure() -> None:
    saved = pod("a", "Failed", **ended(75))
    assert explain(snapshot(workload=runs_on(), pods=[saved])).symptom == "not-ready"


def test_out_of_memory_is_reported_while_the_run_restarts() -> None:
    killed = pod("a", "Failed", **ended(137, "OOMKilled"))
    verdict = explain(snapshot(workload=runs_on(), pods=[killed]))
    assert verdict.symptom == "out-of-memory"
    assert "resources.memory" in verdict.remedy[0]
    replaced = snapshot(workload=runs_on(), pods=[killed, pod("b"), pod("c")])
    assert explain(replaced).symptom == "running"


def test_a_training_run_has_only_the_training_symptom() -> None:
    taken = snapshot(workload=runs_on(), pods=[pod("a"), pod("b")])
    found = [verdict.symptom for symptom in SYMPTOMS if (verdict := symptom(taken))]
    assert found == ["running"]


def unqueued(*, scheduler: str = "") -> Json:
    """A run that Kueue does not queue."""
    spec = {"containers": [], **({"schedulerName": scheduler} if scheduler else {})}
    found = run(spec={"template": {"spec": spec}})
    found["metadata"]["labels"].pop(naming.QUEUE_NAME)
    return found


def test_a_gang_of_another_scheduler_is_explained_by_its_pods(text: Text) -> None:
    why = condition("PodScheduled", "False", "Unschedulable", "pod group is not ready")
    stuck = pod("a", "Pending", conditions=[why])
    mine = unqueued(scheduler="volcano")
    assert explain(snapshot(run=mine, pods=[stuck])).symptom == "unschedulable"
    verdict = explain(snapshot(run=mine))
    assert verdict.symptom == "not-ready"
    text(verdict.remedy[0])
    assert explain(snapshot(run=mine, pods=[pod("a")])).symptom == "running"


def test_a_run_without_queue_and_scheduler_is_reported() -> None:
    assert explain(snapshot(run=unqueued())).symptom == "no-queue"
    assert explain(snapshot(run=unqueued(), pods=[pod("a")])).symptom == "running"
