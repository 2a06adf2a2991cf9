"""What `why` says of a run that waits for its dataset."""

from __future__ import annotations

from typing import Any

from infra.domain import naming
from ops.objects import Json
from ops.snapshot import Preparation
from ops.symptoms import explain
from tests.unit.ops.run_fixtures import condition, log, pod, run, runs_on, snapshot
from tests.unit.snapshots import Text

JOB = "prepare-web-01234567"
FAILED = condition("Failed", reason="FailedJobs", message="jobset failed due to job failures")


def waiting_pod(container: str = naming.DATASET_CONTAINER, /, **state: Any) -> Json:
    """A pod of the run whose init container is in this state."""
    found = pod(phase="Pending", initContainerStatuses=[{"name": container, "state": state}])
    variable = {"name": naming.PREPARATION_ENV, "value": JOB}
    found["spec"]["initContainers"] = [{"name": container, "env": [variable]}]
    return found


def job(*conditions: Json) -> Json:
    meta = {"name": JOB, "namespace": "team-research"}
    return {"kind": "Job", "metadata": meta, "status": {"conditions": list(conditions)}}


def prepares(found: Json, phase: str = "", *lines: str) -> dict[str, Any]:
    """The Job, its pod, and the end of its log."""
    return {"preparations": [awaited(naming.DATASET_CONTAINER, "prepare", found, phase, *lines)]}


def awaited(container: str, of_job: str, found: Json, phase: str, *lines: str) -> Preparation:
    said = log("prepare-0", *lines)
    return Preparation(
        container=container,
        name=JOB,
        job=found,
        pods=[pod("prepare-0", phase)] if phase else [],
        logs=[said.__class__(pod="prepare-0", container=of_job, lines=said.lines)],
    )


def test_a_run_that_waits_for_its_dataset_shows_how_far_it_is(text: Text) -> None:
    taken = snapshot(
        workload=runs_on(),
        pods=[waiting_pod(running={})],
        **prepares(job(), "Running", "tokenizing: 12 of 48 MB (25 %)"),
    )
    verdict = explain(taken)
    assert verdict.symptom == "dataset-preparing"
    assert "25 %" in verdict.evidence[0]
    text([verdict.headline, *verdict.evidence, *verdict.remedy])


def test_a_failed_preparation_is_the_failure_of_the_run_with_its_cause(text: Text) -> None:
    taken = snapshot(
        run=run(status={"conditions": [FAILED]}),
        pods=[waiting_pod(terminated={"exitCode": 78, "reason": "Error"})],
        **prepares(
            job(condition("Failed", message="exit code 78 matching FailJob rule")),
            "Failed",
            "prepare: a.parquet: no column 'body'; columns are text",
        ),
    )
    verdict = explain(taken)
    assert verdict.symptom == "dataset-failed"
    assert "no column 'body'" in verdict.evidence[0]
    text([verdict.headline, *verdict.evidence, *verdict.remedy])


def test_a_job_that_failed_for_good_is_told_while_the_pods_still_wait() -> None:
    taken = snapshot(
        workload=runs_on(),
        pods=[waiting_pod(running={})],
        **prepares(job(condition("Failed", message="BackoffLimitExceeded"))),
    )
    verdict = explain(taken)
    assert (verdict.symptom, verdict.headline.split(":")[0]) == ("dataset-failed", "waits")


def test_a_run_that_trains_is_not_blamed_on_a_later_preparation() -> None:
    ready = pod(initContainerStatuses=[])
    ready["spec"] |= waiting_pod()["spec"]
    failed = job(condition("Failed", message="BackoffLimitExceeded"))
    taken = snapshot(workload=runs_on(), pods=[ready], **prepares(failed))
    assert explain(taken).symptom not in ("dataset-failed", "dataset-preparing")
    ended = snapshot(workload=runs_on(), pods=[ready], **prepares(job(condition("Complete"))))
    assert explain(ended).symptom != "dataset-preparing"


def test_a_model_that_could_not_be_fetched_is_the_failure_of_the_run_with_its_cause(
    text: Text,
) -> None:
    cause = "weights: acme/tiny: HTTP 403 from hub.example: the model is gated"
    found = job(condition("Failed", message="exit code 78 matching FailJob rule"))
    taken = snapshot(
        run=run(status={"conditions": [FAILED]}),
        pods=[waiting_pod(naming.WEIGHTS_CONTAINER, terminated={"exitCode": 78})],
        preparations=[awaited(naming.WEIGHTS_CONTAINER, "fetch", found, "Failed", cause)],
    )
    verdict = explain(taken)
    assert verdict.symptom == "model-failed"
    assert verdict.evidence[0].endswith(cause)
    text([verdict.headline, *verdict.evidence, *verdict.remedy])


def test_a_run_with_a_dataset_waits_for_its_model(text: Text) -> None:
    taken = snapshot(
        workload=runs_on(),
        pods=[waiting_pod(naming.WEIGHTS_CONTAINER, running={})],
        preparations=[
            *prepares(job(condition("Complete")))["preparations"],
            awaited(naming.WEIGHTS_CONTAINER, "fetch", job(), "Running", "fetching: 1 of 2 GB"),
        ],
    )
    verdict = explain(taken)
    assert verdict.symptom == "model-fetching"
    text([verdict.headline, *verdict.evidence, *verdict.remedy])
