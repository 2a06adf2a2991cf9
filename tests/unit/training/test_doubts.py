"""A doubtful run is told about at preview, and still deployed."""

from __future__ import annotations

from typing import Any

from training.deployment import doubts
from training.spec import Dataset, Resources, RunSpec


def run(optimizer: dict[str, Any]) -> RunSpec:
    return RunSpec(
        name="hello",
        version=1,
        team="research",
        tier="research",
        launcher="jobset",
        nodes=2,
        processes_per_node=1,
        image="registry.example/trainer@sha256:" + "0" * 64,
        config={"steps": 100, "batch": {"global_samples": 256}, "optimizer": optimizer},
        dataset=Dataset(name="stdlib"),
        resources=Resources(cpu="1", memory="1Gi", shm="64Mi"),
    )


def test_a_learning_rate_scaled_far_is_doubted_in_one_line_that_names_the_run() -> None:
    found = run({"scale_learning_rate": 16})
    (line,) = doubts.of(found)
    assert line.startswith(f"{found.run_id}: config: optimizer.scale_learning_rate: 256 / 16")
    assert "\n" not in line


def test_an_ordinary_run_is_not_doubted() -> None:
    assert doubts.of(run({"scale_learning_rate": 64})) == []
    assert doubts.of(run({})) == []
