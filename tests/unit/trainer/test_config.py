"""Every issue of a trainer configuration is reported at once, each in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.snapshots import Snapshot
from trainer.config import load, parse, world_issues
from trainer.config_errors import ConfigError, ConfigIssue

CONFIGS = Path(__file__).parents[3] / "training" / "configs"
GOOD: dict[str, Any] = {"steps": 100, "data": {"path": "/data/x"}}


def issues_of(values: Any) -> list[ConfigIssue]:
    with pytest.raises(ConfigError) as caught:
        parse(values, "c")
    return [issue for issue in caught.value.issues if isinstance(issue, ConfigIssue)]


def with_(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


def with_data(**changes: Any) -> dict[str, Any]:
    return with_(data={**GOOD["data"], **changes})


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_configuration_in_the_project_is_valid_for_two_ranks(file: Path) -> None:
    config = load(file, ["data.path=/data/x"])
    assert world_issues(config, 2) == []


def test_weights_of_datasets_become_the_smallest_whole_numbers() -> None:
    sources = [{"path": "/b", "weight": 0.2}, {"path": "/c", "weight": 0.1}]
    config = parse(with_data(weight=0.7, sources=sources))
    assert config.data.weights() == (7, 2, 1)
    assert config.data.paths() == ("/data/x", "/b", "/c")
    assert parse(config.to_dict()) == config


BAD: dict[str, tuple[Any, str, str]] = {
    "misspelt key": (with_(step=3), "unknown-key", "step"),
    "misspelt key of a section": (
        with_(batch={"globalsamples": 3}),
        "unknown-key",
        "batch.globalsamples",
    ),
    "unknown key": (with_(zzz=3), "unknown-key", "zzz"),
    "no steps": ({"data": {"path": "x"}}, "missing", "steps"),
    "steps in words": (with_(steps="ten"), "wrong-type", "steps"),
    "steps as a truth value": (with_(steps=True), "wrong-type", "steps"),
    "a fraction of steps": (with_(steps=1.5), "wrong-type", "steps"),
    "no step": (with_(steps=0), "out-of-range", "steps"),
    "negative seed": (with_(seed=-1), "out-of-range", "seed"),
    "seed beyond 64 bits": (with_(seed=2**63), "out-of-range", "seed"),
    "learning rate beyond 64 bits": (
        with_(optimizer={"learning_rate": 10**400}),
        "out-of-range",
        "optimizer.learning_rate",
    ),
    "truth value in words": (with_(deterministic="yes"), "wrong-type", "deterministic"),
    "unknown device": (with_(device="tpu"), "unknown-value", "device"),
    "learning rate not a number": (
        with_(optimizer={"learning_rate": float("nan")}),
        "wrong-type",
        "optimizer.learning_rate",
    ),
    "beta of 1": (with_(optimizer={"beta1": 1.0}), "out-of-range", "optimizer.beta1"),
    "scaled from nothing": (
        with_(optimizer={"scale_learning_rate": 0}),
        "out-of-range",
        "optimizer.scale_learning_rate",
    ),
    "section as a number": (with_(optimizer=3), "wrong-type", "optimizer"),
    "interval of 0": (
        with_(checkpoint={"every_steps": 0}),
        "out-of-range",
        "checkpoint.every_steps",
    ),
    "malformed location": (
        with_(checkpoint={"store": "s3:/b"}),
        "invalid-location",
        "checkpoint.store",
    ),
    "small vocabulary": (with_(model={"vocab_size": 100}), "out-of-range", "model.vocab_size"),
    "odd width": (
        with_(model={"hidden_size": 100, "heads": 8, "kv_heads": 8}),
        "out-of-range",
        "model.hidden_size",
    ),
    "heads that do not divide": (
        with_(model={"heads": 4, "kv_heads": 3}),
        "out-of-range",
        "model.kv_heads",
    ),
    "batch that does not divide": (
        with_(batch={"global_samples": 10, "micro_samples": 4}),
        "out-of-range",
        "batch.global_samples",
    ),
    "no shard": (with_(parallel={"shard": 0}), "out-of-range", "parallel.shard"),
    "negative prefetch": (with_data(prefetch_steps=-1), "out-of-range", "data.prefetch_steps"),
    "unknown treatment of documents": (
        with_data(documents="cut"),
        "unknown-value",
        "data.documents",
    ),
    "bucket without staging": (with_data(path="s3://b/d"), "missing", "data.staging"),
    "sources as a mapping": (with_data(sources={"path": "/b"}), "wrong-type", "data.sources"),
    "source without a path": (
        with_data(sources=[{"weight": 2}]),
        "missing",
        "data.sources[0].path",
    ),
    "source of weight 0": (
        with_data(sources=[{"path": "/b", "weight": 0}]),
        "out-of-range",
        "data.sources[0].weight",
    ),
    "weights without a short pattern": (
        with_data(weight=0.123456789, sources=[{"path": "/b"}]),
        "out-of-range",
        "data.sources",
    ),
    "unknown schedule": (with_(parallel={"schedule": "zb"}), "unknown-value", "parallel.schedule"),
    "weights from nowhere": (with_(model={"weights": "safetensors"}), "conflict", "model.weights"),
    "shape besides a folder": (
        with_(model={"path": "/m", "layers": 3}),
        "conflict",
        "model.layers",
    ),
    "tensor parallelism that does not divide": (
        with_(parallel={"tensor": 4}, model={"kv_heads": 2}),
        "out-of-range",
        "parallel.tensor",
    ),
    "more stages than layers": (
        with_(parallel={"pipeline": 5}),
        "out-of-range",
        "parallel.pipeline",
    ),
    "pipeline with tied embeddings": (
        with_(parallel={"pipeline": 2}, model={"tie_embeddings": True}),
        "conflict",
        "parallel.pipeline",
    ),
    "unknown precision": (
        with_(precision={"compute": "fp8"}),
        "unknown-value",
        "precision.compute",
    ),
    "gradients below the precision of compute": (
        with_(precision={"reduce": "bfloat16"}),
        "conflict",
        "precision.reduce",
    ),
    "tracking in a file": (with_(report={"mlflow": "runs/x.db"}), "invalid-uri", "report.mlflow"),
    "credentials in a URI": (
        with_(report={"mlflow": "http://a:b@c"}),
        "plaintext-secret",
        "report.mlflow",
    ),
    "warm-up of the whole run": (
        with_(schedule={"warmup_steps": 100}),
        "out-of-range",
        "schedule.warmup_steps",
    ),
    "no data": ({"steps": 100}, "missing", "data.path"),
}
TEXTS = Snapshot(Path(__file__).with_name("messages.yaml"), "config")


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_setting_is_one_issue(case: str) -> None:
    values, code, path = BAD[case]
    (issue,) = issues_of(values)
    assert (issue.code, issue.path) == (code, f"c: {path}")
    TEXTS.check(case, [str(issue)])


def test_texts_are_those_of_the_cases() -> None:
    assert TEXTS.cases() == set(BAD)


def test_all_issues_are_reported_at_once() -> None:
    values = with_(step=1, device="tpu", optimizer={"lr": 1}, batch={"micro_samples": "x"})
    assert len(issues_of(values)) == 4


def test_an_exponent_without_a_point_is_the_number_people_mean() -> None:
    assert parse(with_(optimizer={"learning_rate": "1e-3"})).optimizer.learning_rate == 0.001


def test_assignments_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("steps: 5\ndata: {path: a}\nschedule: {warmup_steps: 1}\n")
    config = load(file, ["data.path=b", "optimizer.learning_rate=1e-4", "checkpoint.every_steps=7"])
    assert (config.data.path, config.checkpoint.every_steps) == ("b", 7)
    assert config.checkpoint.interval_s is None
    assert config.optimizer.learning_rate == 1e-4


@pytest.mark.parametrize("assignment", ["steps", "=3", "steps.x=3", "data.path=[", ""])
def test_a_broken_assignment_is_named(assignment: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("steps: 50\ndata: {path: a}\n")
    with pytest.raises(ConfigError) as caught:
        load(file, [assignment])
    (issue,) = caught.value.issues
    assert isinstance(issue, ConfigIssue)
    assert (issue.code, issue.path) == ("invalid-assignment", f"--set {assignment}")


DEEP = "a: " + "[" * 5000 + "]" * 5000


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", "just words", "\x00", DEEP])
def test_a_file_that_is_no_configuration_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"c\.yaml"):
        load(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "none.yaml")


def test_reading_a_configuration_loads_no_torch() -> None:
    program = "import sys, trainer.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("checkpoint", "seconds"),
    [
        ({}, 600.0),
        ({"every_steps": None, "every_seconds": None}, 600.0),
        ({"every_steps": 5}, None),
        ({"every_seconds": 7.0}, 7.0),
        ({"every_steps": 5, "every_seconds": 7.0}, 7.0),
    ],
)
def test_saves_are_by_time_unless_steps_are_given(
    checkpoint: dict[str, Any], seconds: float | None
) -> None:
    assert parse(with_(checkpoint=checkpoint), "c").checkpoint.interval_s == seconds
