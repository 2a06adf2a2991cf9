"""Settings that may be a mistake are warnings at preview; the run is still deployed."""

from __future__ import annotations

from typing import Any

from training.deployment.trainer_settings import config_warnings
from training.spec import Dataset, Resources, RunSpec


def run(optimizer: dict[str, Any]) -> RunSpec:
    return RunSpec(
        name="hello",
        version=1,
        team="research",
        tier="research",
        job_kind="jobset",
        nodes=2,
        processes_per_node=1,
        image="registry.example/trainer@sha256:" + "0" * 64,
        config={"steps": 100, "batch": {"global_samples": 256}, "optimizer": optimizer},
        dataset=Dataset(name="stdlib"),
        resources=Resources(cpu="1", memory="1Gi", shm="64Mi"),
    )


def test_a_learning_rate_scaled_far_is_one_warning_that_names_the_run() -> None:
    found = run({"scale_learning_rate": 16})
    (line,) = config_warnings(found)
    assert line.startswith(f"{found.run_id}: config: optimizer.scale_learning_rate: 256 / 16")
    assert "\n" not in line


def test_an_ordinary_run_has_no_warnings() -> None:
    assert config_warnings(run({"scale_learning_rate": 64})) == []
    assert config_warnings(run({})) == []
