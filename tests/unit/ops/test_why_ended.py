"""Why a run ended, or is about to."""

from __future__ import annotations

import dataclasses

import pytest

from ops.metrics import Vitals
from ops.objects import Json
from ops.symptoms import explain, history
from tests.unit.ops.run_fixtures import (
    NOW,
    at,
    condition,
    ended,
    log,
    pod,
    run,
    runs_on,
    snapshot,
    workload,
)
from tests.unit.snapshots import Text

FAILED = condition("Failed", reason="FailedJobs", message="jobset failed due to job failures")


def failed_run(**changes: object) -> Json:
    return run(status={"conditions": [FAILED]}, **changes)


@pytest.mark.parametrize("kind", ["Completed", "Complete", "Succeeded"])
def test_a_run_that_reached_its_last_step_is_finished_despite_its_status(
    kind: str, text: Text
) -> None:
    verdict = explain(snapshot(run=run(status={"conditions": [condition(kind)]})))
    assert verdict.symptom == "finished"
    text(verdict.headline)


def test_exit_code_78_is_a_bad_configuration_and_points_to_the_log(text: Text) -> None:
    verdict = explain(snapshot(run=failed_run(), pods=[pod("hello-0", "Failed", **ended(78))]))
    assert verdict.symptom == "bad-configuration"
    text(verdict.evidence[0])
    text(verdict.remedy)


def test_a_bad_configuration_is_read_from_the_job_without_pods(text: Text) -> None:
    message = "Container trainer for pod a/b failed with exit code 78 matching FailJob rule"
    job = {
        "kind": "Job",
        "metadata": {"name": "hello-worker-0"},
        "status": {"conditions": [condition("Failed", message=message)]},
    }
    verdict = explain(snapshot(run=failed_run(), jobs=[job]))
    assert verdict.symptom == "bad-configuration"
    text(verdict.remedy[0])


def test_exit_code_78_of_an_attempt_is_ignored_while_the_run_continues() -> None:
    taken = snapshot(workload=runs_on(), pods=[pod("a", "Failed", **ended(78))])
    assert explain(taken).symptom != "bad-configuration"


def test_other_failures_report_their_exit_code(text: Text) -> None:
    verdict = explain(snapshot(run=failed_run(), pods=[pod("hello-0", "Failed", **ended(3))]))
    assert verdict.symptom == "failed"
    text(verdict.headline)


def test_exhausted_restarts_are_reported(text: Text) -> None:
    reason = condition("Failed", reason="ReachedMaxRestarts", message="reaching max restarts")
    verdict = explain(snapshot(run=run(status={"conditions": [reason]})))
    text(verdict.headline)


def test_a_gang_of_one_pod_that_used_up_its_restarts_says_so(text: Text) -> None:
    said = log("hello-0", "restarts: the ranks ended with 1; 3 restarts are used up", "a", "b", "c")
    taken = snapshot(run=failed_run(), pods=[pod("hello-0", "Failed", **ended(1))], logs=[said])
    text(explain(taken).headline)


def test_a_pod_that_is_replaced_because_its_ranks_never_made_a_step(text: Text) -> None:
    pods = [pod("hello-0", "Failed", **ended(71)), pod("hello-1", "Pending")]
    verdict = explain(snapshot(workload=runs_on(), pods=pods))
    assert verdict.symptom == "restarting"
    text(verdict.headline)


def test_restarts_in_the_pod_are_history(text: Text) -> None:
    vitals = Vitals(restarts_in_pod=2.0)
    text(history(snapshot(workload=runs_on(), pods=[pod("a")], vitals=vitals)))


def test_a_program_that_saves_elsewhere_is_told() -> None:
    lines = ["after 10 min: what", "at the end: what"]
    said = log(
        "hello-0", *(f"launch: no file in /checkpoints/x/checkpoints {one}" for one in lines)
    )
    taken = snapshot(run=run(status={"restarts": 1}), workload=runs_on(), logs=[said])
    told = [
        "restarted 1 time: 1 after a notice (exit code 75)",
        "no file in /checkpoints/x/checkpoints after 10 min: what",
    ]
    assert history(taken) == told
    saved = dataclasses.replace(taken, vitals=Vitals(checkpoint_write_s=3.0))
    assert history(saved) == told[:1]


def test_out_of_memory_kills_are_distinguished_from_other_kills() -> None:
    killed = pod("hello-0", "Failed", **ended(137, "OOMKilled"))
    assert explain(snapshot(run=failed_run(), pods=[killed])).symptom == "out-of-memory"
    other = pod("hello-0", "Failed", **ended(137, "Error"))
    assert explain(snapshot(run=failed_run(), pods=[other])).symptom == "failed"


def test_a_run_being_deleted_names_its_finalizers(text: Text) -> None:
    leaving = run()
    leaving["metadata"] |= {"deletionTimestamp": at(10), "finalizers": ["example.com/hold"]}
    verdict = explain(snapshot(run=leaving, pods=[pod()]))
    assert verdict.symptom == "leaving"
    text(verdict.headline)
    assert any("held by example.com/hold" in line for line in verdict.evidence)


def test_a_run_over_its_hours_is_stopped_by_the_cost_cap() -> None:
    evicted = condition("Evicted", reason="DeactivatedDueToMaximumExecutionTimeExceeded")
    verdict = explain(snapshot(workload=workload(evicted, active=False)))
    assert verdict.symptom == "stopped"
    assert "maxHours" in verdict.headline
    assert "costCapUsd" in verdict.remedy[0]


def test_a_run_that_was_never_ready_is_stopped_by_the_limit_of_requeues() -> None:
    evicted = condition(
        "Evicted",
        reason="DeactivatedDueToRequeuingLimitExceeded",
        message="The workload is deactivated due to exceeding the maximum number of re-queuing retries",
    )
    verdict = explain(snapshot(workload=workload(evicted, active=False)))
    assert verdict.symptom == "stopped"
    assert verdict.headline.endswith("its pods were not ready in time")
    assert '{"spec":{"active":true}}' in verdict.remedy[0]


def test_a_deactivated_run_can_be_requeued_manually(text: Text) -> None:
    evicted = condition("Evicted", reason="Deactivated", message="The workload is deactivated")
    verdict = explain(snapshot(workload=workload(evicted, active=False)))
    text(verdict.headline)
    assert '{"spec":{"active":true}}' in verdict.remedy[0]


def test_times_are_counted_from_the_moment_of_the_snapshot() -> None:
    taken = snapshot()
    assert taken.ago(at(90)) == "90 s"
    assert taken.ago(at(60 * 12)) == "12 min"
    assert taken.ago(at(3600 * 5)) == "5 h"
    assert taken.ago(None) == "some time"
    assert taken.now == NOW
