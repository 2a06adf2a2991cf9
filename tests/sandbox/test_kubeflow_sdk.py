"""Kubeflow's SDK as a member of a team uses it: real Trainer, Kueue and admission policies, and a process node."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from infra.addons.registry import ADD_ONS
from infra.domain import naming
from infra.domain.storage import Volume
from infra.queueing import kueue, priorities
from infra.sites.simulated import storage
from infra.tenancy import volumes
from ops import __main__ as ops
from sandbox import charts, example_environment
from sandbox.paths import PROJECT
from tests.sandbox.conftest import Cluster
from tests.sandbox.escape_kit import GuardedCluster, queue_of, standing
from tests.sandbox.escape_objects import PRODUCTION, RESEARCH, platform
from tests.sandbox.launcher_kit import documented
from tests.sandbox.node_kit import trainer_image, until
from training import kubeflow

pytestmark = [pytest.mark.sandbox, pytest.mark.long(90)]

NAMESPACE = naming.namespace(RESEARCH)
OPERATOR = "kubeflowTrainer"
EXAMPLE = PROJECT / "examples" / "kubeflow" / "submit.py"
END_S = 300.0

_WITHOUT_OPTIONS = f"""
from kubeflow.trainer import CustomTrainerContainer, TrainerClient
resources = {{"gpu": 1, "cpu": 1, "memory": "1Gi"}}
trainer = CustomTrainerContainer(image="{trainer_image()}", num_nodes=1, resources_per_node=resources)
TrainerClient().train(trainer=trainer)
"""

Sdk = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Iterator[GuardedCluster]:
    more = documented() | {"images": {"trainer": trainer_image()}}
    charts.install(cluster.settings, Console(force_terminal=False), (OPERATOR,), more)
    # Kueue looks for kinds of jobs when it starts, then every two minutes.
    manager = ("deployment", "kueue-controller-manager", "-n", naming.KUEUE_NAMESPACE)
    cluster.kubectl("rollout", "restart", *manager)
    cluster.kubectl("rollout", "status", *manager, "--timeout=180s")
    with standing(cluster, operators=True) as guarded:
        runtime = kubeflow.runtime(RESEARCH, platform(), trainer_image())
        volume = Volume(size="1Gi", storage_class=naming.SIMULATED_STORAGE_CLASS)
        claims = (naming.CHECKPOINTS_CLAIM, naming.DATASETS_CLAIM)
        classes = [kueue.workload_priority_class(name) for name in priorities.PRIORITIES]
        assert runtime is not None
        made = [volumes.claim(RESEARCH, claim, volume) for claim in claims]
        cluster.apply(storage.storage_class(), *classes, runtime, *made)
        with queue_of(guarded, RESEARCH, nodes="process"):
            yield guarded
            cluster.kubectl("delete", "trainjobs", "-n", NAMESPACE, "--all", "--timeout=180s")
        own = [f"workloadpriorityclass/{name}" for name in priorities.PRIORITIES]
        shared = f"storageclass/{naming.SIMULATED_STORAGE_CLASS}"
        cluster.kubectl("delete", shared, *own, "--timeout=180s")
    cluster.kubectl("delete", "namespace", ADD_ONS[OPERATOR].namespace, "--timeout=180s")


@pytest.fixture(scope="module")
def kubeconfig(guarded: GuardedCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A researcher's, with the team's namespace."""
    file, group = tmp_path_factory.mktemp("sdk") / "ada.yaml", naming.group(RESEARCH, "researcher")
    return guarded.cluster.kubeconfig_of(file, "ada", group, NAMESPACE)


@pytest.fixture
def sdk(kubeconfig: Path) -> Sdk:
    """Run Python in the examples' environment, which has the SDK, as the researcher."""
    python = example_environment.ensure(print) / "bin" / "python"

    def run(*words: str, config: Path = kubeconfig) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"KUBECONFIG": str(config), "PYTHONPATH": str(PROJECT)}
        return subprocess.run(
            [python, *words], env=env, capture_output=True, text=True, timeout=180, check=False
        )

    return run


def _state(cluster: Cluster, run_id: str) -> set[str]:
    found = json.loads(
        cluster.kubectl("get", "trainjob", run_id, "-n", NAMESPACE, "-o", "json")
    ).get("status", {})
    return {c["type"] for c in found.get("conditions", []) if c["status"] == "True"}


def test_a_function_trains_on_two_nodes_and_is_a_run_of_the_team(
    guarded: GuardedCluster, sdk: Sdk, kubeconfig: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = sdk(str(EXAMPLE), "sdk", "--steps", "40")
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.split()[-1]
    assert run_id.startswith("sdk-v1-")
    until(lambda: _state(guarded.cluster, run_id) & {"Complete", "Failed"}, "it ends", END_S)
    capfd.readouterr()
    code = ops.main(["run", "list", "--kubeconfig", str(kubeconfig), "--team", RESEARCH])
    listed = capfd.readouterr().out
    assert code == 0 and run_id in listed, listed
    assert "Complete" in _state(guarded.cluster, run_id), guarded.cluster.kubectl(
        "logs", "-n", NAMESPACE, "-l", f"{naming.RUN_ID}={run_id}", "--tail=40", "--prefix"
    )
    claim = guarded.cluster.state.volumes / NAMESPACE / naming.CHECKPOINTS_CLAIM
    assert list((claim / run_id / "checkpoints").glob("*40*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-c", _WITHOUT_OPTIONS), "ValidatingAdmissionPolicy 'trainyard-"),
        (
            (str(EXAMPLE), "foreign", "--image", "evil.example/x@sha256:" + "1" * 64),
            "spec.trainer.image is not valid",
        ),
    ],
    ids=["no queue", "foreign image"],
)
def test_what_is_not_a_run_of_the_team_is_refused(
    guarded: GuardedCluster, sdk: Sdk, words: tuple[str, ...], said: str
) -> None:
    done = sdk(*words)
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert "foreign" not in guarded.cluster.kubectl("get", "trainjobs", "-n", NAMESPACE)


def test_another_teams_namespace_is_refused(
    guarded: GuardedCluster, sdk: Sdk, kubeconfig: Path, tmp_path: Path
) -> None:
    config = yaml.safe_load(kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = naming.namespace(PRODUCTION)
    file = tmp_path / "other.yaml"
    file.write_text(yaml.safe_dump(config))
    done = sdk(str(EXAMPLE), "theirs", config=file)
    assert done.returncode == 1 and "forbidden" in done.stderr.lower(), done.stderr
