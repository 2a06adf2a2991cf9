"""A run whose model comes from a hub: fetched by a Job with the team's token, then trained from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from infra.domain import naming
from ops import __main__ as ops
from tests.sandbox.conftest import Cluster, as_list
from tests.sandbox.node_kit import trainer_image, until
from tests.sandbox.team_kit import TeamStage, process_pool
from tests.unit.weights.hub_server import COMMIT, MODEL, HubServer, serve
from training import job, run_files
from training.spec import RunSpec

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600), pytest.mark.long(37)]

POOL, ZONE = "weights-ondemand", "weights-zone"
CPUS = {"name": "weights-cpu", "instanceTypes": ["m6i.xlarge"], "workload": "cpu"}
TEAM = TeamStage(
    team="weights",
    pools=[
        process_pool(POOL, "on-demand", 1, ZONE),
        process_pool(POOL, "on-demand", 1, ZONE) | CPUS,
    ],
    guaranteed={POOL: 1},
    more={"egressCidrs": ["203.0.113.0/24"], "images": {"trainer": trainer_image()}},
    of_team={"secrets": [{"name": "hub", "env": ["HF_TOKEN", "HF_ENDPOINT"]}]},
)
TOKEN = "hf_live_token"
END_S = 240.0
"""A process that loads torch, on a machine that may be busy with other tests."""


@dataclass(frozen=True)
class Stage:
    """The team on the cluster, and the hub that its secret names."""

    cluster: Cluster
    hub: HubServer

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", TEAM.namespace, *arguments, stdin=stdin)

    @property
    def data(self) -> Path:
        return TEAM.volume(self.cluster, naming.DATASETS_CLAIM)

    def start(self, folder: Path, name: str) -> RunSpec:
        """Start a run of two steps from the hub's model."""
        document = {
            "name": name,
            "version": 1,
            "team": TEAM.team,
            "nodes": 1,
            "gpusPerNode": 1,
            "image": "trainer",
            "config": "tiny.yaml",
            "dataset": {"name": "letters"},
            "resources": {"cpu": "1", "memory": "2Gi", "shm": "256Mi"},
        }
        settings = {
            "steps": 2,
            "model": {"path": f"hub:{MODEL}@{COMMIT}", "weights": "safetensors"},
            "data": {"sequence_length": 32},
            "batch": {"global_samples": 2, "micro_samples": 2},
            "schedule": {"warmup_steps": 1},
        }
        (folder / "tiny.yaml").write_text(yaml.safe_dump(settings))
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
        platform = TEAM.platform()
        [run] = run_files.load((f"{name}.yaml",), platform, TEAM.more["images"], folder)
        objects = [TEAM.own(one) for one in job.submitted(run, platform, "c" * 40)]
        text = as_list(objects)
        assert TOKEN not in text
        self.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        return run

    def ended(self, run: RunSpec) -> str:
        def state() -> str:
            found = json.loads(self.kubectl("get", "jobset", run.run_id, "-o", "json"))
            return str(found.get("status", {}).get("terminalState", ""))

        until(state, f"{run.name} has ended", END_S, every_s=0.5)
        return state()

    def logs(self, selector: str) -> str:
        return self.kubectl(
            "logs", "-l", selector, "--tail=-1", "--ignore-errors", "--all-containers"
        )


def _tiny_model(folder: Path) -> dict[str, bytes]:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = LlamaConfig(
        vocab_size=264,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    LlamaForCausalLM(shape).save_pretrained(folder)
    return {one.name: one.read_bytes() for one in folder.iterdir()}


@pytest.fixture(scope="module")
def stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The team with its volumes, its queue, nodes, a secret and a dataset; deleted at the end."""
    from trainer.prepare.source import open_source
    from trainer.prepare.state import no_progress
    from trainer.prepare.tokens import parse_tokenizer_choice
    from trainer.prepare.writer import Settings, prepare

    files = _tiny_model(tmp_path_factory.mktemp("model"))
    texts = tmp_path_factory.mktemp("texts")
    for letter in "abcdefgh":
        (texts / f"{letter}.txt").write_text(letter * 400)
    with (
        serve(HubServer(files=files, token=TOKEN)) as hub,
        TEAM.deployed(cluster, "jobsets,jobs") as ready,
    ):
        found = Stage(ready, hub)
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "hub"},
            "stringData": {"HF_TOKEN": TOKEN, "HF_ENDPOINT": hub.address},
        }
        found.kubectl("apply", "-f", "-", stdin=json.dumps(secret))
        prepare(
            open_source(str(texts), ()),
            found.data / "letters",
            Settings(eval_fraction=0.2, shard_tokens=2048),
            parse_tokenizer_choice("bytes", None),
            no_progress,
            1,
        )
        yield found


def test_a_gated_model_is_the_failure_of_the_run(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.hub.gated = True
    try:
        run = stage.start(tmp_path, "gated")
        assert stage.ended(run) == "Failed"
    finally:
        stage.hub.gated = False
    ops.main(["run", "why", run.run_id, "--kubeconfig", str(stage.cluster.kubeconfig)])
    said = " ".join(capsys.readouterr().out.split())
    assert "its model could not be fetched" in said
    assert "the model is gated: accept its terms" in said
    assert TOKEN not in said + stage.logs(naming.RUN_ID) + stage.logs(naming.COMPONENT)
    stage.kubectl("delete", "jobset", run.run_id)
    stage.kubectl("delete", "jobs", "-l", f"{naming.COMPONENT}={naming.WEIGHTS_COMPONENT}")


def test_a_run_trains_from_a_model_of_the_hub_that_is_fetched_once(
    stage: Stage, tmp_path: Path
) -> None:
    run = stage.start(tmp_path, "tuned")
    assert stage.ended(run) == "Completed", stage.logs(f"{naming.RUN_ID}={run.run_id}")
    folder = stage.data / "models" / "hub" / MODEL / COMMIT
    assert (folder / "model.safetensors").read_bytes() == stage.hub.files["model.safetensors"]
    assert {one.token for one in stage.hub.asked} == {TOKEN}
    assert len(stage.hub.paths("model.safetensors")) == 1
    pods = json.loads(stage.kubectl("get", "pods", "-l", naming.RUN_ID, "-o", "json"))["items"]
    assert "HF_TOKEN" not in json.dumps(pods)
