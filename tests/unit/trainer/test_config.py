"""A configuration's mistakes are all told at once, each in one line that says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from training.config_errors import ConfigError
from training.trainer.config import load, parse, world_mistakes

CONFIGS = Path(__file__).parents[3] / "training" / "configs"
GOOD: dict[str, Any] = {"steps": 100, "data": {"path": "/data/x"}}


def mistakes_of(values: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(values, "c")
    return caught.value.lines


def with_(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


def with_data(**changes: Any) -> dict[str, Any]:
    return with_(data={**GOOD["data"], **changes})


def test_the_smallest_configuration_gets_the_documented_defaults() -> None:
    config = parse(GOOD)
    assert (config.seed, config.batch.global_samples, config.checkpoint.keep_latest) == (0, 32, 2)


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_configuration_in_the_project_is_valid_for_two_ranks(file: Path) -> None:
    config = load(file, ["data.path=/data/x"])
    assert world_mistakes(config, 2) == []


def test_a_configuration_survives_being_written_and_read() -> None:
    config = parse(with_(optimizer={"learning_rate": 0.01}))
    assert parse(config.to_dict()) == config


def test_weights_of_datasets_become_the_smallest_whole_numbers() -> None:
    sources = [{"path": "/b", "weight": 0.2}, {"path": "/c", "weight": 0.1}]
    config = parse(with_data(weight=0.7, sources=sources))
    assert config.data.weights() == (7, 2, 1)
    assert config.data.paths() == ("/data/x", "/b", "/c")
    assert parse(config.to_dict()) == config


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (with_(step=3), "c: step: unknown; did you mean steps?"),
        (with_(batch={"globalsamples": 3}), "did you mean global_samples?"),
        (with_(zzz=3), "c: zzz: unknown; allowed steps, seed"),
        ({"data": {"path": "x"}}, "c: steps: missing; it has no default"),
        (with_(steps="ten"), "c: steps: got 'ten'; allowed a whole number"),
        (with_(steps=True), "c: steps: got True; allowed a whole number"),
        (with_(steps=1.5), "c: steps: got 1.5; allowed a whole number"),
        (with_(steps=0), "c: steps: got 0; allowed > 0"),
        (with_(seed=-1), "c: seed: got -1; allowed >= 0"),
        (with_(seed=2**63), "c: seed: got 9223372036854775808; allowed a number of less than 64"),
        (with_(optimizer={"learning_rate": 10**400}), "allowed a number of less than 64 bits"),
        (with_(deterministic="yes"), "c: deterministic: got 'yes'; allowed true or false"),
        (with_(device="tpu"), "c: device: got 'tpu'; allowed auto, cpu, cuda"),
        (with_(optimizer={"learning_rate": float("nan")}), "allowed a finite number"),
        (with_(optimizer={"beta1": 1.0}), "c: optimizer.beta1: got 1.0; allowed 0 up to"),
        (with_(optimizer={"scale_learning_rate": 0}), "c: optimizer.scale_learning_rate: got 0"),
        (with_(optimizer=3), "c: optimizer: got 3; allowed a mapping"),
        (with_(checkpoint={"every_steps": 0}), "allowed > 0; use null to switch it off"),
        (with_(checkpoint={"store": "s3:/b"}), "got 's3:/b'; must be s3://BUCKET/PREFIX, or null"),
        (with_(checkpoint={"every_steps": None}), "every_steps and every_seconds are both null"),
        (with_(model={"vocab_size": 100}), "c: model.vocab_size: got 100; allowed >= 257"),
        (with_(model={"hidden_size": 100, "heads": 8, "kv_heads": 8}), "2 x heads = 16"),
        (with_(model={"heads": 4, "kv_heads": 3}), "c: model.kv_heads: got 3"),
        (with_(batch={"global_samples": 10, "micro_samples": 4}), "batch.micro_samples = 4"),
        (with_(parallel={"shard": 0}), "c: parallel.shard: got 0; allowed > 0"),
        (with_data(prefetch_steps=-1), "c: data.prefetch_steps: got -1; allowed >= 0"),
        (with_data(documents="cut"), "c: data.documents: got 'cut'; allowed join, separate"),
        (with_data(path="s3://b/d"), "c: data.staging: missing; s3://b/d is read from a copy"),
        (with_data(sources={"path": "/b"}), "c: data.sources: got {'path': '/b'}; allowed a list"),
        (with_data(sources=[{"weight": 2}]), "c: data.sources[0].path: missing"),
        (with_data(sources=[{"path": "/b", "weight": 0}]), "data.sources[0].weight: got 0"),
        (with_data(weight=0.123456789, sources=[{"path": "/b"}]), "repeat after more than 65536"),
        (with_(parallel={"schedule": "zb"}), "c: parallel.schedule: got 'zb'; allowed 1f1b, gpipe"),
        (
            with_(model={"weights": "safetensors"}),
            "model.weights: got safetensors; allowed with mo",
        ),
        (with_(model={"path": "m", "layers": 3}), "model.layers: got 3 besides model.path; allow"),
        (
            with_(parallel={"tensor": 4}, model={"kv_heads": 2}),
            "c: parallel.tensor: got 4; allowed a divisor of kv_heads = 2",
        ),
        (with_(parallel={"pipeline": 5}), "parallel.pipeline: got 5; allowed at most the model's"),
        (
            with_(parallel={"pipeline": 2}, model={"tie_embeddings": True}),
            "c: parallel.pipeline: got 2 with tied embeddings",
        ),
        (with_(precision={"compute": "fp8"}), "c: precision.compute: got 'fp8'; allowed float32"),
        (with_(precision={"reduce": "bfloat16"}), "c: precision.reduce: got bfloat16; allowed"),
        (with_(report={"prometheus_port": 0}), "c: report.prometheus_port: got 0; allowed 1 to"),
        (
            with_(report={"mlflow": "runs/x.db"}),
            "c: report.mlflow: got 'runs/x.db'; allowed sqlite",
        ),
        (with_(report={"mlflow": "http://a:b@c"}), "c: report.mlflow: got a URI with credentials"),
        (with_(schedule={"warmup_steps": 100}), "allowed < steps = 100"),
        ({"steps": 100}, "c: data.path: missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_one_line_that_says_what_is_allowed(values: Any, line: str) -> None:
    (mistake,) = mistakes_of(values)
    assert line in mistake
    assert "\n" not in mistake


def test_all_mistakes_are_told_at_once() -> None:
    values = with_(step=1, device="tpu", optimizer={"lr": 1}, batch={"micro_samples": "x"})
    assert len(mistakes_of(values)) == 4


def test_an_exponent_without_a_point_is_the_number_people_mean() -> None:
    assert parse(with_(optimizer={"learning_rate": "1e-3"})).optimizer.learning_rate == 0.001


def test_assignments_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("steps: 5\ndata: {path: a}\nschedule: {warmup_steps: 1}\n")
    config = load(file, ["data.path=b", "optimizer.learning_rate=1e-4", "checkpoint.every_steps=7"])
    assert (config.data.path, config.checkpoint.every_steps) == ("b", 7)
    assert config.optimizer.learning_rate == 1e-4


@pytest.mark.parametrize("assignment", ["steps", "=3", "steps.x=3", "data.path=[", ""])
def test_a_broken_assignment_is_named(assignment: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("steps: 50\ndata: {path: a}\n")
    with pytest.raises(ConfigError, match="--set " + assignment.replace("[", r"\[")):
        load(file, [assignment])


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", "just words", "\x00"])
def test_a_file_that_is_no_configuration_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"c\.yaml"):
        load(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "none.yaml")


def test_the_batch_must_divide_among_the_ranks() -> None:
    config = parse(with_(batch={"global_samples": 32, "micro_samples": 16}))
    assert world_mistakes(config, 2) == []
    (mistake,) = world_mistakes(config, 3)
    assert "micro_samples x data ranks = 16 x 3; take 48, or change" in mistake


def test_reading_a_configuration_loads_no_torch() -> None:
    program = "import sys, training.trainer.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
