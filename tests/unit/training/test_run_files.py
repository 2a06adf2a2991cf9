"""Run files: valid ones become runs, each mistake in others is one issue."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import ConfigError
from tests.golden.example_runs import (
    IMAGE,
    RUN_FILE,
    TRAINER_CONFIG,
    platform,
    project_in,
    stack_values,
    write_runs,
)
from tests.unit.infra.config_issues import codes
from tests.unit.training.config_issues import check_issues, edited
from training import plan, run_files
from training.spec import RunSpec


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one trainer configuration and no runs yet."""
    return project_in(tmp_path)


def load(project: Path, *names: str, **stack: Any) -> list[RunSpec]:
    """The runs of these files on the example platform."""
    stack = {"teams": with_secrets()} | stack
    return run_files.load(names or ("llama",), platform(**stack), {"trainer": IMAGE}, project)


def with_secrets() -> list[dict[str, Any]]:
    """The example's teams; research has secrets."""
    research, *others = stack_values()["teams"]
    hub = {"name": "hub", "env": ["HF_TOKEN"]}
    loud = {"name": "loud", "env": ["TORCH_DISTRIBUTED_DEBUG"]}
    return [research | {"secrets": [hub, loud]}, *others]


def error_of(project: Path, *names: str, **stack: Any) -> ConfigError:
    """The error of these files."""
    with pytest.raises(ConfigError) as caught:
        load(project, *names, **stack)
    return caught.value


def test_a_run_file_becomes_a_run(project: Path) -> None:
    write_runs(project, RUN_FILE)
    [run] = load(project)
    assert run.run_id.startswith("llama-v1-")
    assert (run.tier, run.job_kind, run.world_size, run.seed) == ("research", "jobset", 16, 5)
    assert run.image == IMAGE
    assert run.config == TRAINER_CONFIG
    assert run.capacity_types == ("spot", "on-demand")


def test_each_document_is_a_run_of_its_own(project: Path) -> None:
    write_runs(project, RUN_FILE)
    [alone] = load(project)
    write_runs(project, RUN_FILE, RUN_FILE | {"version": 2, "overrides": {"steps": 2000}})
    first, second = load(project)
    assert first.run_id == alone.run_id
    assert second.config["steps"] == 2000
    assert second.run_id != first.run_id


def test_overrides_and_the_checkpoint_policy_are_merged_into_the_configuration(
    project: Path,
) -> None:
    extra = {
        "overrides": {"batch": {"micro_samples": 8}},
        "checkpoint": {"everySeconds": 1800},
    }
    write_runs(project, RUN_FILE | extra)
    [run] = load(project)
    assert run.config["batch"] == {"global_samples": 256, "micro_samples": 8}
    assert run.config["checkpoint"] == {"every_steps": None, "every_seconds": 1800.0}


def test_a_run_that_asks_for_its_export_keeps_the_intervals_of_its_configuration(
    project: Path,
) -> None:
    write_runs(project, RUN_FILE | {"checkpoint": {"export": True}})
    [run] = load(project)
    assert run.config["checkpoint"] == {"every_steps": 50, "export": True}


def test_the_ranks_per_dimension_are_one_fact_for_the_trainer_and_the_record(
    project: Path,
) -> None:
    write_runs(project, RUN_FILE)
    [plain] = load(project)
    assert (plain.parallelism, "parallel" in plain.config) == ({}, False)
    write_runs(project, RUN_FILE | {"parallelism": {"shard": 4, "tensor": 2}})
    [named] = load(project)
    assert named.parallelism == {"replicate": 2, "shard": 4, "tensor": 2}
    assert named.config["parallel"] == {"shard": 4, "tensor": 2}
    write_runs(project, RUN_FILE | {"overrides": {"parallel": {"shard": 4, "tensor": 2}}})
    [overridden] = load(project)
    assert overridden.run_id == named.run_id


def test_production_runs_stay_off_spot_unless_they_ask_for_it(project: Path) -> None:
    write_runs(project, RUN_FILE | {"team": "production"})
    assert load(project)[0].capacity_types == ("on-demand",)
    write_runs(project, RUN_FILE | {"team": "production", "allowSpot": True})
    assert load(project)[0].capacity_types == ("on-demand", "spot")


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("unknown key", {"resources.memori": "1Gi"}, "resources.memori: unknown-key"),
    ("unknown team", {"team": "reserch"}, "team: unknown-name"),
    (
        "image from elsewhere",
        {"image": "ghcr.io/acme/trainer@sha256:" + "a" * 64},
        "image: registry-not-allowed",
    ),
    (
        "priority above the tier",
        {"priority": "production-training"},
        "priority: priority-above-tier",
    ),
    ("unknown launcher", {"jobKind": "job-set"}, "jobKind: unknown-name"),
    ("unknown priority", {"priority": "urgent"}, "priority: unknown-name"),
    ("unknown secret", {"secrets": ["huub"]}, "secrets[0]: unknown-name"),
    ("secret in a variable of the platform", {"secrets": ["loud"]}, "secrets: reserved-variable"),
    ("unknown config", {"config": "bass"}, "config: unknown-name"),
    ("unknown source of data", {"dataset.source": "stdlb"}, "dataset.source: invalid-source"),
    (
        "a column of nothing",
        {"dataset": {"name": "web", "column": "body"}},
        "dataset.column: source-required",
    ),
    (
        "a column of text",
        {"dataset.source": "/data/raw", "dataset.format": "text", "dataset.column": "body"},
        "dataset.column: conflict",
    ),
    (
        "a format of data that nothing reads",
        {"dataset.format": "csv"},
        "dataset.format: unknown-value",
    ),
    ("a tokenizer by name", {"dataset.tokenizer": "gpt2"}, "dataset.tokenizer: invalid-tokenizer"),
    (
        "a tokenizer larger than the model's vocabulary",
        {"dataset.tokenizer": "train:8192"},
        "dataset.tokenizer: vocabulary-too-large",
    ),
    ("data at no location", {"dataset.source": "s3://Bucket"}, "dataset.source: invalid-source"),
    ("impossible version of data", {"dataset.version": "v1"}, "dataset.version: invalid-version"),
    ("unknown GPU model", {"gpuModel": "h100"}, "gpuModel: unknown-name"),
    ("image by tag", {"image": "registry.example.com/trainer:v1"}, "image: invalid-image"),
    ("more GPUs than a node has", {"gpusPerNode": 16, "nodes": 1}, "gpusPerNode: no-such-pool"),
    ("half nodes in a gang", {"gpusPerNode": 4}, "gpusPerNode: no-such-pool"),
    (
        "more GPUs than the team's quota",
        {"nodes": 8, "overrides": {"batch": {"micro_samples": 4}}},
        "nodes: quota-exceeded",
    ),
    (
        "parallelism",
        {"parallelism": {"replicate": 2, "tensor": 4}},
        "config: parallel: out-of-range",
    ),
    ("a gang by the launcher for one node", {"jobKind": "job"}, "nodes: single-node-kind"),
    (
        "batch that does not divide",
        {"overrides": {"batch": {"micro_samples": 32}}},
        "config: batch.global_samples: out-of-range",
    ),
    (
        "checkpoint interval 0",
        {"checkpoint": {"everySteps": 0}},
        "checkpoint.everySteps: out-of-range",
    ),
    ("saves that outlast a spot notice", {"saveSeconds": 110}, "saveSeconds: save-exceeds-notice"),
    (
        "saves that outlast the grace period of an evicted pod",
        {"saveSeconds": 581, "allowSpot": False},
        "saveSeconds: save-exceeds-grace",
    ),
    (
        "more memory than a node has",
        {"resources.memory": "1152Gi"},
        "resources.memory: node-too-small",
    ),
    ("shm above memory", {"resources.memory": "32Gi"}, "resources.shm: shm-above-memory"),
    ("a cap without a duration", {"costCapUsd": 100}, "maxHours: missing"),
    ("dearer than its cap", {"costCapUsd": 100, "maxHours": 10}, "costCapUsd: above-cost-cap"),
    ("bad name", {"name": "My_Run"}, "name: dns-label"),
    ("long name", {"name": "a" * 40}, "name: name-too-long"),
    (
        "model of the Hugging Face Hub",
        {"overrides": {"model": {"path": "meta-llama/Llama-3-8B"}}},
        "config: model.path: invalid-path",
    ),
    (
        "branch of a model",
        {"overrides": {"model": {"path": "hub:acme/tiny@main"}}},
        "config: model.path: invalid-reference",
    ),
    (
        "model of a bucket without a name",
        {"overrides": {"model": {"path": "s3://"}}},
        "config: model.path: invalid-reference",
    ),
    (
        "model of a hub behind network policies",
        {"overrides": {"model": {"path": "hub:acme/tiny@" + "c" * 40}}},
        "config: model.path: unreachable",
    ),
    (
        "tracking server behind network policies",
        {"overrides": {"report": {"mlflow": "http://mlflow.internal:5000"}}},
        "config: report.mlflow: unreachable",
    ),
    (
        "tracking URI of no scheme",
        {"overrides": {"report": {"mlflow": "mlflow.internal"}}},
        "config: report.mlflow: invalid-uri",
    ),
    (
        "plaintext secret",
        {"overrides": {"hub": {"api_key": "abc"}}},
        "overrides.hub.api_key: plaintext-secret\nconfig: hub: unknown-key",
    ),
    ("a name that begins with a digit", {"name": "7b-chat"}, "name: run-name"),
    ("a name of dev pods", {"name": "devpod-ada"}, "name: run-name"),
    ("a name whose run ids are names of dev pods", {"name": "devpod"}, "name: run-name"),
    ("nodes without an end", {"nodes": 10**400}, "nodes: out-of-range"),
    ("restarts without an end", {"maxRestarts": 2**31}, "maxRestarts: out-of-range"),
    (
        "shared memory in thousandths of a byte",
        {"resources.shm": "900m"},
        "resources.shm: out-of-range",
    ),
    (
        "steps that are no number",
        {"overrides": {"steps": float("nan")}},
        "config: steps: wrong-type",
    ),
    ("steps on a day", {"overrides": {"steps": date(2026, 1, 1)}}, "config: steps: wrong-type"),
    ("a seed of letters", {"overrides": {"seed": "x"}}, "config: seed: wrong-type"),
    (
        "a place of data beside the dataset",
        {"overrides": {"data": {"path": "/data/mine"}}},
        "overrides.data.path: platform-setting",
    ),
    (
        "staging on the team's volume",
        {"overrides": {"data": {"staging": "/data/copies"}}},
        "config: data.staging: not-local",
    ),
    ("no seed", {"overrides": {"seed": None}}, "config: seed: wrong-type"),
    (
        "unknown setting",
        {"overrides": {"batch": {"micro_sample": 8}}},
        "config: batch.micro_sample: unknown-key",
    ),
    ("launcher without its operator", {"jobKind": "mpijob"}, "jobKind: operator-required"),
    ("cap without a price", {"costCapUsd": 100, "maxHours": 10}, "costCapUsd: price-unknown"),
    (
        "more nodes than a pool",
        {"team": "production", "nodes": 8, "overrides": {"batch": {"micro_samples": 4}}},
        "nodes: pool-too-small",
    ),
]
UNPRICED = stack_values()["nodePools"]
STACKS: dict[str, dict[str, Any]] = {
    "launcher without its operator": {
        "operators": {"kueue": {"provided": True}, "jobset": {"provided": True}}
    },
    "cap without a price": {
        "nodePools": [UNPRICED[0] | {"instanceTypes": ["p5e.48xlarge"]}, *UNPRICED[1:]]
    },
    "more nodes than a pool": {
        "teams": [
            team | {"quota": {"cpu": "512", "memory": "4Ti", "gpus": 400}}
            for team in stack_values()["teams"]
        ]
    },
}
"""What differs in the stack of a case."""


@pytest.mark.parametrize(("name", "changes", "expected"), BAD, ids=[row[0] for row in BAD])
def test_an_invalid_setting_is_one_issue(
    project: Path, name: str, changes: dict[str, Any], expected: str
) -> None:
    write_runs(project, edited(RUN_FILE, changes))
    check_issues("runs", name, error_of(project, **STACKS.get(name, {})), expected)


def test_more_nodes_than_its_team_can_ever_have_are_refused(project: Path) -> None:
    first, second = stack_values()["teams"]
    big = {"quota": {"cpu": "4096", "memory": "40Ti", "gpus": 400}}
    bounded = [first | big | {"borrowing": {"spot": 1}, "onDemandUsdPerHour": 44}, second]
    write_runs(project, RUN_FILE | {"nodes": 6, "overrides": {"batch": {"global_samples": 768}}})
    check_issues(
        "runs",
        "more nodes than the share",
        error_of(project, teams=bounded),
        "nodes: share-too-small",
    )
    write_runs(project, RUN_FILE | {"nodes": 5, "overrides": {"batch": {"global_samples": 640}}})
    assert load(project, teams=bounded)


def test_a_run_that_refuses_spot_needs_a_team_that_may_buy_on_demand(project: Path) -> None:
    first, second = stack_values()["teams"]
    write_runs(project, RUN_FILE | {"allowSpot": False})
    error = error_of(project, teams=[first | {"onDemandUsdPerHour": 0}, second])
    check_issues("runs", "no on-demand nodes", error, "allowSpot: no-on-demand-pool")
    assert load(project, teams=[first | {"onDemandUsdPerHour": 44}, second])


@pytest.mark.parametrize(
    ("uri", "cidrs", "reachable"),
    [
        ("https://mlflow.example.com", ["0.0.0.0/0"], True),
        ("https://10.1.2.3/path", ["10.0.0.0/8"], True),
        ("https://192.168.0.1", ["10.0.0.0/8"], False),
        ("https://mlflow.example.com:5000", ["0.0.0.0/0"], False),
        ("http://mlflow.example.com", ["0.0.0.0/0"], False),
        ("https://mlflow.example.com", [], False),
        ("http://llama-v1-01234567:40000", [], True),
        ("sqlite:////checkpoints/mlflow.db", [], True),
    ],
)
def test_a_tracking_server_is_one_that_pods_can_reach(
    project: Path, uri: str, cidrs: list[str], reachable: bool
) -> None:
    write_runs(project, RUN_FILE | {"overrides": {"report": {"mlflow": uri}}})
    if reachable:
        assert load(project, egressCidrs=cidrs)
    else:
        error = error_of(project, egressCidrs=cidrs)
        assert codes(error) == ["training/runs/llama.yaml: config: report.mlflow: unreachable"]


def test_a_file_that_is_not_there_is_named() -> None:
    root = Path(__file__).resolve().parents[3]
    with pytest.raises(ConfigError) as caught:
        run_files.load(["hallo"], platform(), {}, root)
    check_issues("runs", "no such file", caught.value, "runs[0]: unknown-name")


def test_a_path_names_a_file_anywhere_in_the_project(project: Path) -> None:
    (project / "mine").mkdir()
    (project / "mine/run.yaml").write_text(yaml.safe_dump(RUN_FILE))
    assert load(project, "mine/run.yaml")[0].name == "llama"
    error = error_of(project, "mine/other.yaml")
    check_issues("runs", "no such path", error, "mine/other.yaml: file-not-found")


def test_a_name_and_version_are_used_once(project: Path) -> None:
    write_runs(project, RUN_FILE, RUN_FILE | {"saveSeconds": 60})
    expected = "training/runs/llama.yaml document 2: version: duplicate"
    check_issues("runs", "version used twice", error_of(project), expected)


def test_issues_of_all_files_are_reported_at_once(project: Path) -> None:
    write_runs(project, RUN_FILE | {"team": "nobody", "jobKind": "none"}, name="one")
    (project / "training/runs/two.yaml").write_text("name: [")
    write_runs(project, RUN_FILE, RUN_FILE | {"version": 0}, name="three")
    error = error_of(project, "one", "two", "three", "four")
    assert codes(error) == [
        "training/runs/one.yaml: team: unknown-name",
        "training/runs/one.yaml: jobKind: unknown-name",
        "training/runs/two.yaml: yaml",
        "training/runs/three.yaml document 2: version: out-of-range",
        "runs[3]: unknown-name",
    ]


def test_runs_of_a_broken_stack_are_checked_too(project: Path) -> None:
    write_runs(project, RUN_FILE | {"version": "1"})
    values = stack_values() | {"runs": ["llama"], "cohort": "Bad Name"}
    with pytest.raises(ConfigError) as caught:
        plan.make(values, "example", project, preview=True)
    assert codes(caught.value) == [
        "cohort: dns-label",
        "training/runs/llama.yaml: version: wrong-type",
    ]


def test_settings_that_cannot_be_read_hide_nothing_else(project: Path) -> None:
    write_runs(project, RUN_FILE | {"overrides": {"steps": 0.5}, "nodes": 8})
    assert codes(error_of(project, "llama")) == [
        "training/runs/llama.yaml: config: steps: wrong-type",
        "training/runs/llama.yaml: nodes: quota-exceeded",
    ]


def test_a_path_that_no_file_can_have_is_one_line(project: Path) -> None:
    [line] = error_of(project, "a\0.yaml").lines
    assert line.startswith("runs[0]: 'a\\x00.yaml' does not exist; ")
