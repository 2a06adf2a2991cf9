"""Run files: good ones become runs, mistakes are one exact line each."""

from __future__ import annotations

import copy
from collections.abc import Callable
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
from training.deployment import plan, run_files
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


def lines(project: Path, *names: str, **stack: Any) -> tuple[str, ...]:
    """The mistakes of these files."""
    with pytest.raises(ConfigError) as caught:
        load(project, *names, **stack)
    return caught.value.lines


def test_a_run_file_becomes_a_run(project: Path) -> None:
    write_runs(project, RUN_FILE)
    [run] = load(project)
    assert run.run_id.startswith("llama-v1-")
    assert (run.tier, run.launcher, run.world_size, run.seed) == ("research", "jobset", 16, 5)
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


def test_an_edited_document_is_a_new_run(project: Path) -> None:
    write_runs(project, RUN_FILE)
    [before] = load(project)
    write_runs(project, RUN_FILE | {"saveSeconds": 60})
    [after] = load(project)
    assert before.run_id != after.run_id


def test_secrets_are_part_of_a_run_by_name_and_runs_without_any_keep_their_ids(
    project: Path,
) -> None:
    write_runs(project, RUN_FILE)
    [plain] = load(project)
    write_runs(project, RUN_FILE | {"secrets": []})
    assert load(project)[0].run_id == plain.run_id
    write_runs(project, RUN_FILE | {"secrets": ["hub"]})
    [secret] = load(project)
    assert secret.secrets == ("hub",)
    assert secret.run_id != plain.run_id


def test_an_edited_configuration_is_a_new_run(project: Path) -> None:
    write_runs(project, RUN_FILE)
    [before] = load(project)
    (project / "training/configs/base.yaml").write_text(
        yaml.safe_dump(TRAINER_CONFIG | {"steps": 999})
    )
    [after] = load(project)
    assert before.run_id != after.run_id


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


def test_the_checkout_stands_for_an_image_of_its_digest(project: Path) -> None:
    references = run_files.images({"trainer": "local/trainer@source"}, project)
    assert references["trainer"].startswith("local/trainer@sha256:")
    assert len(references["trainer"].rpartition(":")[2]) == 64


Edit = Callable[[dict[str, Any]], object]

BAD: dict[str, tuple[Edit, str]] = {
    "unknown key": (
        lambda r: r.update(gpuPerNode=8),
        "gpuPerNode: unknown key; must be one of allowSpot, checkpoint, config, costCapUsd, "
        "dataset, gpuModel, gpusPerNode, image, launcher, maxHours, maxRestarts, name, nodes, "
        "overrides, parallelism, priority, require, resources, saveSeconds, secrets, team, version, "
        "worldSize; did you mean gpusPerNode?",
    ),
    "unknown team": (
        lambda r: r.update(team="reserch"),
        "team: got 'reserch'; allowed production, research; did you mean research?",
    ),
    "image from elsewhere": (
        lambda r: r.update(image="ghcr.io/acme/trainer@sha256:" + "a" * 64),
        "image: got 'ghcr.io/acme/trainer'; allowed images from registry.example.com/trainer; "
        "push it there, or add its registry to the stack's registries",
    ),
    "priority above the tier": (
        lambda r: r.update(priority="production-training"),
        "priority: got 'production-training', which is above the team's tier; allowed "
        "best-effort-training, research-training; choose one, or leave it to the tier",
    ),
    "unknown launcher": (
        lambda r: r.update(launcher="job-set"),
        "launcher: got 'job-set'; allowed indexed-job, job, jobset, mpijob, pytorchjob, trainjob; "
        "did you mean jobset?",
    ),
    "unknown priority": (
        lambda r: r.update(priority="urgent"),
        "priority: got 'urgent'; allowed best-effort-training, production-training, "
        "research-training; choose one",
    ),
    "unknown secret": (
        lambda r: r.update(secrets=["huub"]),
        "secrets[0]: got 'huub'; allowed hub, loud; did you mean hub?",
    ),
    "secret in a variable of the platform": (
        lambda r: r.update(secrets=["loud"]),
        "secrets: got 'loud' with TORCH_DISTRIBUTED_DEBUG, which the platform sets; allowed "
        "variables of your own; rename the key in the Secret and in the secrets of team research",
    ),
    "unknown config": (
        lambda r: r.update(config="bass"),
        "config: got 'bass'; allowed base (files of training/configs); did you mean base?",
    ),
    "unknown source of data": (
        lambda r: r["dataset"].update(source="stdlb"),
        "dataset.source: got 'stdlb'; allowed stdlib, or the absolute path of a folder in the "
        "image or the data volume; did you mean stdlib?",
    ),
    "impossible version of data": (
        lambda r: r["dataset"].update(version="v1"),
        "dataset.version: got 'v1'; allowed latest, or 16 hexadecimal digits; copy it from the "
        "dataset's folder, or leave it out",
    ),
    "unknown GPU model": (
        lambda r: r.update(gpuModel="h100"),
        "gpuModel: got 'h100'; allowed a100; choose one, or add a pool",
    ),
    "image by tag": (
        lambda r: r.update(image="registry.example.com/trainer:v1"),
        "image: got 'registry.example.com/trainer:v1'; allowed trainer, or "
        "REPOSITORY@sha256:DIGEST; name one, or pin a digest",
    ),
    "more GPUs than a node has": (
        lambda r: r.update(gpusPerNode=16, nodes=1),
        "gpusPerNode: got 16; allowed 8 (GPUs per node of spot, ondemand); change gpusPerNode, or "
        "add a pool",
    ),
    "half nodes in a gang": (
        lambda r: r.update(gpusPerNode=4),
        "gpusPerNode: got 4; allowed 8 (GPUs per node of spot, ondemand), for a run of several "
        "nodes takes whole nodes; change gpusPerNode, or add a pool",
    ),
    "more GPUs than the team's quota": (
        lambda r: r.update(nodes=8, overrides={"batch": {"micro_samples": 4}}),
        "nodes: got 8, 64 GPUs in all; allowed at most 32 GPUs, the quota of team research; "
        "ask for fewer, or raise the team's quota.gpus",
    ),
    "world size": (
        lambda r: r.update(worldSize=8),
        "worldSize: got 8; allowed nodes x gpusPerNode = 2 x 8 = 16; remove or correct it",
    ),
    "parallelism": (
        lambda r: r.update(parallelism={"replicate": 2, "tensor": 4}),
        "config: parallel: got pipeline 1 x replicate 2 x shard 1 x tensor 4 = 8; allowed the "
        "world size = 16; change them or the number of ranks",
    ),
    "a gang by the launcher for one node": (
        lambda r: r.update(launcher="job"),
        "nodes: got 2; allowed 1 with launcher job; set launcher: jobset",
    ),
    "batch that does not divide": (
        lambda r: r.update(overrides={"batch": {"micro_samples": 32}}),
        "config: batch.global_samples: got 256; allowed a multiple of micro_samples x data ranks "
        "= 32 x 16; take 512, or change batch.micro_samples",
    ),
    "checkpoint interval 0": (
        lambda r: r.update(checkpoint={"everySteps": 0}),
        "checkpoint.everySteps: 0 is too small; must be at least 1; correct it",
    ),
    "saves that outlast a spot notice": (
        lambda r: r.update(saveSeconds=110),
        "saveSeconds: got 110, which needs 130 s to shut down; allowed at most 100, for spot "
        "capacity is gone 120 s after its notice; make saves faster, or set allowSpot: false",
    ),
    "more memory than a node has": (
        lambda r: r["resources"].update(memory="1152Gi"),
        "resources.memory: got 1152Gi; allowed at most 1054.8Gi, what a node of spot, ondemand has "
        "for runs; lower it",
    ),
    "shm above memory": (
        lambda r: r["resources"].update(memory="32Gi"),
        "resources.shm: got 64Gi; allowed at most memory, 32Gi, of which it is a part; lower shm "
        "or raise memory",
    ),
    "a cap without a duration": (
        lambda r: r.update(costCapUsd=100),
        "maxHours: got nothing; allowed a number of hours, for costCapUsd needs one; add it",
    ),
    "dearer than its cap": (
        lambda r: r.update(costCapUsd=100, maxHours=10),
        "costCapUsd: got 100; allowed at least 439.15, 10 h at 43.92 USD/h on the dearest pool it "
        "may use; raise it, lower maxHours, or use cheaper capacity",
    ),
    "bad name": (
        lambda r: r.update(name="My_Run"),
        "name: 'My_Run' is not valid; must be lower-case letters, digits and hyphens, starting and ending "
        "with a letter or digit, at most 63; rename it",
    ),
    "long name": (
        lambda r: r.update(name="a" * 40),
        "name: got 40 characters; allowed at most 32, for names of pods are made from it; "
        "shorten it",
    ),
    "plaintext secret": (
        lambda r: r.update(overrides={"hub": {"api_key": "abc"}}),
        "overrides.hub.api_key: looks like a secret in plain text; a committed file must not "
        "contain secrets; put it in a Kubernetes Secret, and rotate it",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_exact_line(project: Path, name: str) -> None:
    edit, expected = BAD[name]
    document = copy.deepcopy(RUN_FILE)
    edit(document)
    write_runs(project, document)
    found = [line for line in lines(project) if "config.hub" not in line and "hub:" not in line]
    assert found == [f"training/runs/llama.yaml: {expected}"]


def test_a_setting_that_the_trainer_does_not_know_is_named(project: Path) -> None:
    write_runs(project, RUN_FILE | {"overrides": {"batch": {"micro_sample": 8}}})
    [line] = lines(project)
    assert line.startswith("training/runs/llama.yaml: config")
    assert "micro_sample" in line and "micro_samples" in line


def test_a_launcher_whose_operator_is_not_there_is_refused(project: Path) -> None:
    write_runs(project, RUN_FILE | {"launcher": "mpijob"})
    operators = {"kueue": {"provided": True}, "jobset": {"provided": True}}
    assert lines(project, operators=operators) == (
        "training/runs/llama.yaml: launcher: got 'mpijob', whose operator the stack lacks; allowed "
        "indexed-job, job, jobset; choose one, or add the operator to the stack's operators",
    )


def test_a_cap_on_pools_without_a_known_price_is_refused(project: Path) -> None:
    pools = copy.deepcopy(stack_values()["nodePools"])
    pools[0]["instanceTypes"] = ["p5e.48xlarge"]
    write_runs(project, RUN_FILE | {"costCapUsd": 100, "maxHours": 10})
    assert lines(project, nodePools=pools) == (
        "training/runs/llama.yaml: costCapUsd: got a cap on pools whose price is not known: "
        "ondemand; allowed a cap where infra/domain/catalog.yaml has a price of every pool; run "
        "python -m infra.cli.catalog refresh, or remove the cap",
    )


def test_more_nodes_than_a_pool_has_are_refused(project: Path) -> None:
    teams = [
        team | {"quota": {"cpu": "512", "memory": "4Ti", "gpus": 400}}
        for team in stack_values()["teams"]
    ]
    wide = {"team": "production", "nodes": 8, "overrides": {"batch": {"micro_samples": 4}}}
    write_runs(project, RUN_FILE | wide)
    assert lines(project, teams=teams) == (
        "training/runs/llama.yaml: nodes: got 8; allowed at most 4, the largest pool of ondemand; "
        "ask for fewer, or raise the pool's max",
    )


def test_more_nodes_than_its_team_can_ever_have_are_refused(project: Path) -> None:
    first, second = stack_values()["teams"]
    big = {"quota": {"cpu": "4096", "memory": "40Ti", "gpus": 400}}
    bounded = [first | big | {"borrowing": {"spot": 1}, "onDemandUsdPerHour": 44}, second]
    write_runs(project, RUN_FILE | {"nodes": 6, "overrides": {"batch": {"global_samples": 768}}})
    assert lines(project, teams=bounded) == (
        "training/runs/llama.yaml: nodes: got 6; allowed at most 5, what team research can have at "
        "once of spot, ondemand; ask for fewer, or raise the team's guaranteed, borrowing or "
        "onDemandUsdPerHour",
    )
    write_runs(project, RUN_FILE | {"nodes": 5, "overrides": {"batch": {"global_samples": 640}}})
    assert load(project, teams=bounded)


def test_a_run_that_refuses_spot_needs_a_team_that_may_buy_on_demand(project: Path) -> None:
    first, second = stack_values()["teams"]
    write_runs(project, RUN_FILE | {"allowSpot": False})
    assert lines(project, teams=[first | {"onDemandUsdPerHour": 0}, second]) == (
        "training/runs/llama.yaml: allowSpot: got false, where team research has spot pools only; "
        "allowed true, or on-demand nodes for the team; set allowSpot: true, add a pool, or raise the "
        "team's onDemandUsdPerHour or borrowing",
    )
    assert load(project, teams=[first | {"onDemandUsdPerHour": 44}, second])


def test_a_file_that_is_not_there_is_named() -> None:
    root = Path(__file__).resolve().parents[3]
    with pytest.raises(ConfigError) as caught:
        run_files.load(["hallo"], platform(), {}, root)
    assert caught.value.lines == (
        "runs[0]: got 'hallo'; allowed drill, hello (files of training/runs), or a path to a .yaml "
        "file; did you mean hello?",
    )


def test_a_path_names_a_file_anywhere_in_the_project(project: Path) -> None:
    (project / "mine").mkdir()
    (project / "mine/run.yaml").write_text(yaml.safe_dump(RUN_FILE))
    assert load(project, "mine/run.yaml")[0].name == "llama"
    assert lines(project, "mine/other.yaml") == (
        "mine/other.yaml: no such file; must be a YAML file; check the name",
    )


def test_a_name_and_version_are_used_once(project: Path) -> None:
    write_runs(project, RUN_FILE, RUN_FILE | {"saveSeconds": 60})
    assert lines(project) == (
        "training/runs/llama.yaml document 2: version: got 1 of 'llama', which "
        "training/runs/llama.yaml document 1 has too; allowed one run per name and version; raise "
        "the version",
    )


def test_mistakes_of_all_files_come_at_once(project: Path) -> None:
    write_runs(project, RUN_FILE | {"team": "nobody", "launcher": "none"}, name="one")
    (project / "training/runs/two.yaml").write_text("name: [")
    write_runs(project, RUN_FILE, RUN_FILE | {"version": 0}, name="three")
    found = [line.partition("; ")[0] for line in lines(project, "one", "two", "three", "four")]
    assert found == [
        "training/runs/one.yaml: team: got 'nobody'",
        "training/runs/one.yaml: launcher: got 'none'",
        "training/runs/two.yaml: YAML error at line 1, column 8: expected the node content, "
        "but found '<stream end>'",
        "training/runs/three.yaml document 2: version: 0 is too small",
        "runs[3]: got 'four'",
    ]


def test_runs_of_a_broken_stack_are_checked_too(project: Path) -> None:
    write_runs(project, RUN_FILE | {"version": "1"})
    values = stack_values() | {"runs": ["llama"], "cohort": "Bad Name"}
    with pytest.raises(ConfigError) as caught:
        plan.make(values, "example", project)
    assert [line.partition(";")[0] for line in caught.value.lines] == [
        "cohort: 'Bad Name' is not valid",
        "training/runs/llama.yaml: version: '1' is not a whole number",
    ]
