"""Run status of `wait` and `status`, from the cluster's objects and the trainer's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandbox.drill import first_difference
from sandbox.engine import strip_salt
from sandbox.runs import Progress, Run, build_status, read_lines
from sandbox.watch import state_line, training_line

RUN = Run("hello-v1-0", "hello", "team-research", "/apis/x", "jobsets", "2026-01-01T00:00:00Z")


def _condition(kind: str, when: str = "2026-01-01T00:00:10Z", **more: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": when, **more}


def _workload(*conditions: dict[str, str], flavor: str = "spot") -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:08Z"},
        "spec": {"queueName": "research"},
        "status": {
            "conditions": list(conditions),
            "admission": {"podSetAssignments": [{"flavors": {"nvidia.com/gpu": flavor}}]},
        },
    }


def _metrics(*losses: float, attempt: int = 0) -> list[dict[str, Any]]:
    return [
        {"step": step, "loss": loss, "tokens": 100, "step_time_s": 0.5, "attempt": attempt}
        for step, loss in enumerate(losses, start=1)
    ]


def test_an_unadmitted_run_is_queued() -> None:
    seen = build_status(RUN, {}, [_workload()], [], Progress())
    assert state_line(seen) == "queued in research"


def test_admitted_run_reports_its_flavor_and_queue_time() -> None:
    seen = build_status(RUN, {}, [_workload(_condition("Admitted"))], [], Progress())
    assert state_line(seen) == "admitted to spot after 2 s"


def test_restarted_run_reports_the_eviction_reason() -> None:
    workload = _workload(_condition("Admitted"), flavor="ondemand")
    workload["status"]["schedulingStats"] = {"evictions": [{"reason": "NodeFailures", "count": 1}]}
    seen = build_status(RUN, {"status": {"restarts": 1}}, [workload], [], Progress())
    assert state_line(seen) == ("admitted to ondemand after 2 s; requeued: NodeFailures; restart 1")


def test_queue_time_of_a_requeued_run_starts_at_its_requeueing() -> None:
    requeued = _condition("Requeued", "2026-01-01T00:00:40Z")
    workload = _workload(_condition("Admitted", "2026-01-01T00:00:43Z"), requeued)
    assert (
        state_line(build_status(RUN, {}, [workload], [], Progress()))
        == "admitted to spot after 3 s"
    )


def test_failed_run_reports_the_reason() -> None:
    owner = {"status": {"conditions": [_condition("Failed", message="exit code 78")]}}
    seen = build_status(RUN, owner, [], [], Progress())
    assert state_line(seen) == "failed: exit code 78"


def test_the_time_left_follows_from_the_pace_of_the_last_steps() -> None:
    progress = Progress(_metrics(3.0, 2.5), [{"event": "started", "total_steps": 122}])
    seen = build_status(RUN, {}, [], [{"status": {"phase": "Running"}}], progress)
    assert training_line(seen) == "step 2 / 122, loss 2.500, 200 tokens/s, 1:00 left"


def test_a_run_without_an_end_has_days_left() -> None:
    progress = Progress(_metrics(3.0, 2.5), [{"event": "started", "total_steps": 1_000_000}])
    seen = build_status(RUN, {}, [], [{"status": {"phase": "Running"}}], progress)
    assert training_line(seen).endswith(", 6 days left")


def test_of_a_program_that_tells_neither_steps_nor_tokens_step_and_loss_are_shown() -> None:
    metrics = [one | {"tokens": 0} for one in _metrics(3.0, 2.5)]
    progress = Progress(metrics, [{"event": "started", "world_size": 2}])
    seen = build_status(RUN, {}, [], [{"status": {"phase": "Running"}}], progress)
    assert training_line(seen) == "step 2, loss 2.500"


def test_a_line_that_is_still_being_written_is_left_for_later(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(json.dumps({"step": 1}) + '\n{"ste')
    assert read_lines(tmp_path / "m.jsonl") == [{"step": 1}]
    assert read_lines(tmp_path / "absent.jsonl") == []


def test_equal_losses_do_not_differ_and_the_last_bit_counts() -> None:
    assert first_difference(_metrics(3.0, 2.0), _metrics(3.0, 2.0)) is None
    assert first_difference(_metrics(3.0, 2.0), _metrics(3.0, 2.0000000000000004)) == 2
    assert first_difference(_metrics(3.0, 2.0), _metrics(3.0)) == 2
    assert first_difference(_metrics(3.0), _metrics(3.0, 2.0)) == 2


def test_local_salt_is_removed_from_the_stack_file(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.local.yaml"
    file.write_text("# comment\nencryptionsalt: v1:abc=\nconfig:\n  a:b: 1\n")
    strip_salt(file)
    assert file.read_text() == "# comment\nconfig:\n  a:b: 1\n"
