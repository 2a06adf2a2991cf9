"""Causes found in logs of failed runs, and their precedence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.observability.log_patterns import LOG_PATTERNS
from ops.metrics import GpuFault, Vitals
from ops.objects import Json
from ops.symptoms import explain, history
from ops.symptoms.log_causes import CAUSES
from ops.verdict import Verdict
from tests.unit.ops.run_fixtures import (
    at,
    condition,
    ended,
    log,
    node,
    pod,
    run,
    runs_on,
    snapshot,
    waiting,
)
from tests.unit.snapshots import Text

FAILED = condition("Failed", reason="FailedJobs", message="jobset failed due to job failures")
LINES = {
    "gpu-driver": "Failed to initialize NVML: Driver/library version mismatch",
    "gpu-out-of-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    "disk-full": "OSError: [Errno 28] No space left on device: '/checkpoints/x'",
    "restore-failed": "rank 0: /checkpoints/x: none of the 3 checkpoints can be loaded; move",
    "hung": "launch: no progress for 3601 s: a rank hangs; 3600 s is program.progressTimeoutSeconds",
    "diverged": "rank 0: step 5: loss is nan; lower optimizer.learning_rate",
    "gpu-error": "RuntimeError: CUDA error: an illegal memory access was encountered",
    "rendezvous-failed": "launch: the nodes did not meet: timed out",
    "collective-timeout": "rank 1: another rank is gone or hangs: [gloo/transport/tcp/pair.cc]",
}


def failed(*lines: str, **more: object) -> Verdict:
    """The answer for a run that failed after its pod had written these lines."""
    gone = pod("hello-0", "Failed", **ended(1))
    mine = run(status={"conditions": [FAILED]})
    return explain(snapshot(run=mine, pods=[gone], logs=[log("hello-0", *lines)], **more))


@pytest.mark.parametrize("symptom", LINES)
def test_a_log_line_names_the_cause(symptom: str, text: Text) -> None:
    verdict = failed("step 1", LINES[symptom])
    assert verdict.symptom == symptom
    assert verdict.headline.startswith("failed: ")
    text(verdict.evidence[0])
    text(verdict.evidence)
    assert verdict.remedy


def test_every_cause_uses_known_log_patterns() -> None:
    patterns = {pattern for cause in CAUSES for pattern in cause.patterns}
    assert patterns <= set(LOG_PATTERNS)
    assert len({cause.symptom for cause in CAUSES}) == len(CAUSES)


def test_every_linked_page_exists() -> None:
    root = Path(__file__).resolve().parents[3]
    texts = [path.read_text() for path in (root / "ops" / "symptoms").glob("*.py")]
    named = {page for text in texts for page in re.findall(r"docs/[\w/.-]+\.md", text)}
    pages = ("culprits", "gpus", "recover", "runbooks", "runtime")
    assert named == {f"docs/{page}.md" for page in pages}
    assert [page for page in sorted(named) if not (root / page).is_file()] == []


def test_an_unknown_log_reports_exit_code_and_log_tail(text: Text) -> None:
    verdict = failed("one", "two", "ValueError: odd")
    assert verdict.symptom == "failed"
    text(verdict.evidence[-1])


def test_ranks_that_time_out_are_explained_by_the_rank_that_failed(text: Text) -> None:
    pods = [pod("a", "Failed", **ended(1, seconds_ago=12)), pod("b", "Failed", **ended(1))]
    logs = [
        log("b", LINES["collective-timeout"], seconds_ago=12),
        log("a", LINES["gpu-out-of-memory"], seconds_ago=11),
    ]
    verdict = explain(snapshot(workload=runs_on(), pods=pods, logs=logs))
    assert verdict.symptom == "gpu-out-of-memory"
    text(verdict.headline)
    text(verdict.evidence)


def test_the_first_pod_to_log_a_cause_is_named(text: Text) -> None:
    pods = [pod("a", "Failed", **ended(1)), pod("b", "Failed", **ended(1, seconds_ago=15))]
    line = LINES["rendezvous-failed"]
    logs = [log("a", line, seconds_ago=10), log("b", line, seconds_ago=15)]
    verdict = explain(snapshot(workload=runs_on(), pods=pods, logs=logs))
    assert verdict.evidence[0].startswith("pod/b:")
    text(verdict.evidence)


def test_an_out_of_memory_kill_takes_precedence_over_the_log() -> None:
    killed = pod("hello-0", "Failed", **ended(137, "OOMKilled"))
    mine = run(status={"conditions": [FAILED]})
    logs = [log("hello-0", LINES["collective-timeout"])]
    assert explain(snapshot(run=mine, pods=[killed], logs=logs)).symptom == "out-of-memory"


def test_a_bad_configuration_quotes_the_trainer(text: Text) -> None:
    gone = pod("hello-0", "Failed", **ended(78))
    mine = run(status={"conditions": [FAILED]})
    logs = [log("hello-0", "optimizer.learning_rate: got -1; allowed > 0")]
    verdict = explain(snapshot(run=mine, pods=[gone], logs=logs))
    assert verdict.symptom == "bad-configuration"
    text(verdict.evidence[0])


def test_normal_and_shutdown_log_lines_are_not_causes() -> None:
    logs = [log("a", LINES["collective-timeout"])]
    trains = snapshot(workload=runs_on(), pods=[pod("a"), pod("b")], logs=logs)
    assert explain(trains).symptom == "running"
    leaving = run()
    leaving["metadata"]["deletionTimestamp"] = at(5)
    gone = pod("a", "Failed", **ended(1))
    assert explain(snapshot(run=leaving, workload=runs_on(), pods=[gone], logs=logs)).symptom == (
        "leaving"
    )


def test_pods_that_saved_and_stopped_have_not_failed() -> None:
    saved = pod("a", "Failed", **ended(75))
    logs = [log("a", LINES["collective-timeout"])]
    assert explain(snapshot(workload=runs_on(), pods=[saved], logs=logs)).symptom == "not-ready"


def test_a_container_without_its_gpus_names_the_node(text: Text) -> None:
    message = "nvidia-container-cli: initialization error: nvml error: driver not loaded"
    refused = pod("a", "Pending", **waiting("RunContainerError", message))
    verdict = explain(snapshot(workload=runs_on(), pods=[refused]))
    assert verdict.symptom == "gpu-driver"
    text(verdict.headline)
    other = pod("a", "Pending", **waiting("RunContainerError", "no such file"))
    assert explain(snapshot(workload=runs_on(), pods=[other])).symptom == "setup"


def _sick_node(reason: str = "NvidiaXID79Error") -> Json:
    found = node("spot-0")
    found["status"]["conditions"].append(
        condition("AcceleratedHardwareReady", "False", reason, "GPU has fallen off the bus")
    )
    return found


def test_gpu_errors_explain_errors_of_ranks(text: Text) -> None:
    verdict = failed(LINES["collective-timeout"], nodes=[_sick_node()])
    assert verdict.symptom == "gpu-fault"
    text(verdict.evidence[0])
    text(verdict.remedy[0])
    sound = node("spot-0")
    assert failed(LINES["collective-timeout"], nodes=[sound]).symptom == "collective-timeout"


def test_gpu_errors_are_found_in_metrics(text: Text) -> None:
    vitals = Vitals(gpu_faults=(GpuFault(node="spot-0", gpu="3", what="XID 79"),))
    verdict = failed(LINES["collective-timeout"], vitals=vitals)
    assert verdict.symptom == "gpu-fault"
    text(verdict.evidence)


def test_logs_of_deleted_pods_are_history(text: Text) -> None:
    vitals = Vitals(log_matches={"nccl-timeout": 3.0, "no-space": 1.0})
    taken = snapshot(workload=runs_on(), pods=[pod("a"), pod("b")], vitals=vitals)
    text(history(taken))
