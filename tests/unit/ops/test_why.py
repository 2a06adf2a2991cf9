"""`run why`: the table of symptoms, what it says of the past, and the arithmetic behind it."""

from __future__ import annotations

import dataclasses
import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

from infra.observability.log_patterns import LOG_PATTERNS
from ops import quota
from ops.metrics import Vitals
from ops.runs import why_command
from ops.snapshot import Snapshot
from ops.symptoms import SYMPTOMS, explain, health, history
from ops.symptoms.log_causes import CAUSES
from ops.symptoms.pending import runs_ahead
from tests.unit.ops.run_fixtures import (
    RUN_ID,
    cluster_queue,
    condition,
    ended,
    event,
    log,
    pod,
    pod_spec,
    run,
    runs_on,
    snapshot,
    waits,
    workload,
)
from tests.unit.ops.why_cases import (
    LINES,
    SYMPTOM_ONLY,
    TOLD,
    among,
    attempt,
    full,
    holders,
    program,
    queues,
    trains,
    waits_for,
)
from tests.unit.snapshots import Text


@pytest.mark.parametrize("case", TOLD)
def test_a_run_is_explained(case: str, text: Text) -> None:
    symptom, taken = TOLD[case]
    verdict = explain(taken)
    assert verdict.symptom == symptom
    text([verdict.headline, *verdict.evidence, *(f"-> {line}" for line in verdict.remedy)])


@pytest.mark.parametrize("case", SYMPTOM_ONLY)
def test_a_neighbour_has_its_own_symptom(case: str) -> None:
    symptom, taken = SYMPTOM_ONLY[case]
    assert explain(taken).symptom == symptom


def test_the_table_has_every_symptom_of_logs_and_the_page_shows_the_same() -> None:
    told = {symptom for symptom, _ in TOLD.values()}
    assert {cause.symptom for cause in CAUSES} <= told
    assert len({cause.symptom for cause in CAUSES}) == len(CAUSES) == len(LINES)
    assert {pattern for cause in CAUSES for pattern in cause.patterns} <= set(LOG_PATTERNS)
    symptom, taken = TOLD["a pod that cannot end, evicted"]
    assert why_command.values(taken)["symptom"] == symptom


def test_every_linked_page_exists() -> None:
    root = Path(__file__).resolve().parents[3]
    texts = [path.read_text() for path in (root / "ops" / "symptoms").glob("*.py")]
    named = {page for text in texts for page in re.findall(r"docs/[\w/.-]+\.md", text)}
    pages = ("failures", "gpus", "recover", "runbooks", "runtime")
    assert named == {f"docs/{page}.md" for page in pages}
    assert [page for page in sorted(named) if not (root / page).is_file()] == []


def test_a_training_run_has_only_the_training_symptom() -> None:
    found = [verdict.symptom for symptom in SYMPTOMS if (verdict := symptom(attempt()))]
    assert found == ["running"]


def test_a_run_has_trained_when_a_step_is_known() -> None:
    taken = attempt()
    assert explain(taken).headline == "has run for 30 s on spot-0; no step of it is known yet"
    for known in ({"logs": [log("a", "step 3/9  loss 5.0")]}, {"vitals": Vitals(reported=True)}):
        trained = dataclasses.replace(taken, **known)
        assert explain(trained).headline == "has trained for 30 s on spot-0"


@pytest.mark.parametrize(
    ("others", "spec", "named"),
    [
        (holders(), None, {"big-v1-bbbbbbbb", "prod-v2-cccccccc"}),
        (holders(), pod_spec(("spot",)), {"big-v1-bbbbbbbb"}),
        (
            [
                holders()[0],
                workload(condition("Finished"), run_id="over-v1-dddddddd", uid="d", flavor="spot"),
            ],
            None,
            {"big-v1-bbbbbbbb"},
        ),
    ],
    ids=["all", "of suitable flavors", "not finished ones"],
)
def test_holders_of_quota_are_named(others: list[object], spec: object, named: set[str]) -> None:
    text = " ".join(explain(among(*others, spec=spec)).evidence)  # type: ignore[arg-type]
    ids = ("big-v1-bbbbbbbb", "prod-v2-cccccccc", "over-v1-dddddddd")
    assert {one for one in ids if one in text} == named


@pytest.mark.parametrize(
    ("used", "free"),
    # The lender uses what it keeps first, so all that it lends is still there.
    [(8, Decimal(8)), (16, Decimal(0))],
)
def test_quota_above_the_lending_limit_is_not_free_for_others(used: int, free: Decimal) -> None:
    keeps = {"nominalQuota": "16", "lendingLimit": "8"}
    lender = cluster_queue("production", spot=0, ondemand=keeps, used={"ondemand": used})
    cohort = queues(cluster_queue(spot=0, ondemand=0), lender)
    (room,) = quota.flavor_capacities(waits_for(gang=1, spec=pod_spec(("ondemand",)), **cohort))
    assert (room.free, room.maximum) == (free, Decimal(8))


def test_quota_of_the_cohort_itself_is_free_for_all() -> None:
    own = cluster_queue(spot=0, ondemand=8, used={"ondemand": 8})
    taken = waits_for(gang=1, spec=pod_spec(("ondemand",)), **queues(own, ondemand=24))
    (room,) = quota.flavor_capacities(taken)
    assert (room.free, room.maximum) == (Decimal(24), Decimal(32))


@pytest.mark.parametrize(
    ("reason", "place"), [("PodsReadyTimeout", 2), ("AdmissionCheck", 2), ("Preempted", 1)]
)
def test_a_run_evicted_before_starting_is_requeued_behind_others(reason: str, place: int) -> None:
    mine = workload(waits(""), condition("Evicted", "True", reason), age_s=900)
    other = workload(waits(""), run_id="other-v1-1", uid="o", age_s=500)
    taken = snapshot(workload=mine, workloads=[other, mine], **full())
    assert len(runs_ahead(taken)) == place - 1
    assert f"position {place} of 2 in its queue" in explain(taken).headline


def test_numbers_and_further_problems_are_notes() -> None:
    assert health.notes(trains(checkpoint_write_s=3.2)) == [
        "18,230 tokens/s; GPU utilization 93 %; waiting for data 2 %; waiting for ranks 5 %; "
        "last checkpoint written in 3.2 s"
    ]
    assert health.notes(attempt()) == []
    further = health.notes(trains(loader=0.62, gpu_busy=0.3))[1:]
    assert [line.partition(":")[0] for line in further] == ["low-utilization"]


def test_a_program_without_metrics_is_told_when_it_is_not_new() -> None:
    silent = "no metrics: the program does not report any; see docs/runtime.md"
    assert health.notes(program()) == [silent]
    assert health.notes(program(gpu_busy=0.9))[0] == "GPU utilization 90 %"
    assert health.notes(program(age_s=30)) == []
    assert health.notes(program(reported=True)) == health.notes(program(reported=None)) == []
    zeros = {"tokens_per_s": 0.0, "loader": 0.0, "collective": 0.0}
    assert health.notes(program(reported=True, steps_per_s=0.5, **zeros)) == ["0.5 steps/s"]
    assert health.notes(trains(age_s=3600))[1:] == []


def test_the_save_deadline_follows_from_the_grace_period() -> None:
    assert health.expected_save_s(trains(grace_s=50)) == 30.0
    assert health.expected_save_s(trains(grace_s=5)) == 1.0
    assert health.expected_save_s(snapshot(pods=[pod("a")])) is None


def preempted() -> Snapshot:
    (_, preemptor) = holders()
    message = (
        f"Preempted to accommodate a workload (UID: {preemptor['metadata']['uid']}, JobUID: c) due"
        " to reclamation within the cohort; preemptor path: /t/p; preemptee path: /t/r"
    )
    stats = {"evictions": [{"reason": "Preempted", "count": 1, "underlyingCause": ""}]}
    why = condition("Preempted", "True", "InCohortReclamation", message)
    mine = workload(waits(""), why, schedulingStats=stats)
    return snapshot(workload=mine, workloads=[mine, preemptor])


def evicted_by_a_node() -> Snapshot:
    gone, other = pod(f"{RUN_ID}-worker-0-0-abcde"), pod("big-v1-bbbbbbbb-worker-0-0-abcde")
    events = [
        event(gone, "Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi."),
        event(gone, "Killing", "Stopping container trainer"),
        event(other, "Evicted", "The node was low on resource: ephemeral-storage."),
    ]
    return snapshot(events=events)


UNSAVED = [
    log(
        "hello-0",
        *(f"launch: no file in /checkpoints/x/checkpoints {when}: what" for when in whens),
    )
    for whens in [("after 10 min", "at the end")]
]


def copied(**summary: object) -> Snapshot:
    """A run whose team's results a Job has copied, with this summary."""
    found = pod("results-copy-1-abcde", "Failed", **ended(1, seconds_ago=600))
    [status] = found["status"]["containerStatuses"]
    told = json.dumps({"store": "s3://bucket/research", **summary})
    status["state"]["terminated"]["message"] = told
    return snapshot(results_pod=found)


PAST = {
    "results that a bucket refused": copied(cause="403 AccessDenied: no permission"),
    "results of this run that could not be copied": copied(causes={RUN_ID: "step 20 is corrupt"}),
    "results of another run": copied(cause="", causes={"other-v1-00000000": "step 20 is corrupt"}),
    "results, and their pod was killed": snapshot(
        results_pod=pod("results-copy-1", "Failed", **ended(137, "OOMKilled"))
    ),
    "preempted": preempted(),
    "preempted by a run that is gone": dataclasses.replace(preempted(), workloads=[]),
    "evicted by its node": evicted_by_a_node(),
    "restarted after notices and failures": snapshot(
        run=run(status={"restarts": 3, "restartsCountTowardsMax": 1})
    ),
    "restarted in its pod": attempt(pod("a"), vitals=Vitals(restarts_in_pod=2.0)),
    "lines of deleted pods": attempt(
        vitals=Vitals(log_matches={"nccl-timeout": 3.0, "no-space": 1.0})
    ),
    "saves elsewhere": snapshot(run=run(status={"restarts": 1}), workload=runs_on(), logs=UNSAVED),
    "saves there, too": snapshot(
        workload=runs_on(), logs=UNSAVED, vitals=Vitals(checkpoint_write_s=3.0)
    ),
}


@pytest.mark.parametrize("case", PAST)
def test_the_past_of_a_run_is_told(case: str, text: Text) -> None:
    text(history(PAST[case]))
