"""Explanations of runs whose ranks have named one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ops.metrics import GpuFault, Vitals
from ops.snapshot import Snapshot
from ops.symptoms import explain, health, history
from ops.symptoms.culprits import named
from tests.unit.ops.run_fixtures import NOW, condition, ended, log, pod, run, runs_on, snapshot
from tests.unit.snapshots import Text
from trainyard import culprits
from trainyard.culprits import NO_RANK, Culprit

FAILED = condition("Failed", reason="FailedJobs", message="jobset failed due to job failures")
TIMED_OUT = "rank 0: another rank is gone or hangs: [gloo/transport/tcp/pair.cc]"


def culprit(symptom: str = culprits.HUNG, *, ago_s: float = 60, **changes: Any) -> Culprit:
    """A rank on one of the nodes of `trains`."""
    made = Culprit(
        symptom=symptom,
        rank=3,
        node="spot-0",
        pod="b",
        step=41,
        attempt=1,
        time=NOW.timestamp() - ago_s,
        what="does not leave the loader for 21 s",
        evidence=(
            "its main thread: data/windows.py:88 gather",
            "rank 0 and 2 more since 21 s in x",
        ),
        frame="data/windows.py:88 gather",
    )
    return replace(made, **changes)


def metric(one: Culprit) -> Culprit:
    """What of it a metric has."""
    return replace(one, step=0, attempt=0, what="", evidence=(), frame="")


def trains(*lines: str, **vitals: Any) -> Snapshot:
    numbers = Vitals(steps_per_s=2.0, reported=True, **vitals) if vitals else None
    pods = [pod("a"), pod("b")]
    return snapshot(workload=runs_on(), pods=pods, logs=[log("a", *lines)], vitals=numbers)


def failed(*lines: str, **more: Any) -> Snapshot:
    gone = pod("a", "Failed", **ended(1))
    mine = run(status={"conditions": [FAILED]})
    return snapshot(run=mine, pods=[gone], logs=[log("a", *lines)], **more)


@pytest.mark.parametrize("symptom", culprits.SYMPTOMS)
def test_a_run_that_trains_names_the_rank_before_all_else(symptom: str, text: Text) -> None:
    taken = trains(culprit(symptom).line(), loader=0.62)
    verdict = explain(taken)
    assert verdict.symptom == symptom
    text(verdict.headline)
    assert verdict.evidence[0] == "pod/b: does not leave the loader for 21 s"
    assert verdict.evidence[1] == "its main thread: data/windows.py:88 gather"
    assert any(line.startswith("slow-loader: ") for line in health.notes(taken))


def test_a_failed_run_names_the_rank_that_hung_and_not_those_that_timed_out(text: Text) -> None:
    verdict = explain(failed(culprit().line(), TIMED_OUT))
    assert verdict.symptom == "hung"
    text(verdict.headline)
    text(verdict.evidence)
    text(verdict.remedy)
    assert explain(failed(TIMED_OUT)).symptom == "collective-timeout"


def test_a_slow_rank_does_not_explain_a_failure() -> None:
    line = culprit(culprits.SLOW_RANK).line()
    assert explain(failed(line, TIMED_OUT)).symptom == "collective-timeout"


def test_metrics_name_ranks_of_attempts_whose_logs_are_gone() -> None:
    taken = trains(culprits=(metric(culprit()),))
    assert explain(taken).symptom == "hung"
    assert explain(taken).headline == "trains, but rank 3 on spot-0 hangs"


def test_of_one_rank_the_log_says_more_than_the_metric() -> None:
    (found,) = named(trains(culprit().line(), culprits=(metric(culprit()),)))
    assert found.frame == "data/windows.py:88 gather"


@pytest.mark.parametrize(("symptom", "ago_s"), [(culprits.HUNG, 1200), (culprits.SLOW_RANK, 180)])
def test_a_run_that_trains_on_has_overcome_it(symptom: str, ago_s: float) -> None:
    taken = trains(culprit(symptom, ago_s=ago_s).line(), loader=0.01)
    assert explain(taken).symptom == "running"
    assert any("rank 3 on spot-0" in line for line in history(taken))


def test_faults_of_the_nodes_gpus_are_evidence() -> None:
    fault = GpuFault(node="spot-0", gpu="2", what="XID 79")
    verdict = explain(failed(culprit().line(), vitals=Vitals(gpu_faults=(fault,))))
    assert verdict.symptom == "hung"
    assert verdict.evidence[-1] == "node/spot-0: GPU 2: XID 79"


def test_where_no_rank_is_to_blame_all_are_named(text: Text) -> None:
    taken = trains(culprit(rank=NO_RANK, node="", pod="", what="all ranks wait in x").line())
    text(explain(taken).headline)


def test_where_replicas_differ_and_none_is_named_the_candidates_are_evidence() -> None:
    one = culprit(
        culprits.CORRUPT,
        rank=NO_RANK,
        node="",
        pod="",
        what="replicas on ranks 0, 1 differ again",
        evidence=("rank 0 is on spot-0, pod a", "rank 1 is on spot-1, pod b"),
        frame="",
    )
    verdict = explain(trains(one.line()))
    assert verdict.headline.startswith("trains, but replicas on ranks 0, 1 differ again")
    assert verdict.evidence[:2] == one.evidence
    assert "its node" not in "".join(verdict.remedy)
    only_metric = explain(trains(culprits=(metric(one),)))
    assert only_metric.headline == "trains, but replicas differ"


def test_a_log_cannot_put_words_into_a_command() -> None:
    evil = culprit(culprits.CORRUPT, node="x; rm -rf /", what="\x1b[31mred")
    verdict = explain(trains(evil.line()))
    assert not any("rm -rf" in line for line in verdict.remedy)
    assert "\x1b" not in "".join((verdict.headline, *verdict.evidence))
