"""The value of a run's secret appears only in the run: not in state, logs, previews or outputs."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from infra.cli.render import render
from infra.config import stack_values
from sandbox import paths
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600), pytest.mark.long(84)]

TEAM = "canary"
NAMESPACE = f"team-{TEAM}"
STACK = "canary"
RUN_S = 240.0

VALUE = f"canary-{uuid4().hex}"
TRACES = (VALUE.encode(), base64.b64encode(VALUE.encode()))


def _stack(run: Path) -> dict[str, Any]:
    node = {"capacity": "on-demand", "min": 1, "max": 1, "zone": "canary-1a", "nodes": "process"}
    pools = [
        node | {"name": "canary-gpu", "instanceTypes": ["g6.xlarge"]},
        node | {"name": "canary-cpu", "instanceTypes": ["m6i.xlarge"], "workload": "cpu"},
    ]
    team = {
        "name": TEAM,
        "tier": "research",
        "quota": {"cpu": "16", "memory": "64Gi", "gpus": 1},
        "secrets": [{"name": "tracking", "env": ["TRACKING_TOKEN"]}],
    }
    return {
        "cluster": {"provider": "existing", "name": "sandbox"},
        "taintKey": "dedicated",
        "cohort": "canary",
        "nodePools": pools,
        "storage": {"checkpoints": "1Gi", "datasets": "1Gi"},
        "operators": {"kueue": {"provided": True}, "jobset": {"provided": True}},
        "teams": [team],
        "images": {"trainer": "sandbox.trainyard.dev/trainer@source"},
        "runs": [str(run)],
    }


@dataclass
class CommandRecorder:
    """A stack with a run that uses a secret, and the output of all commands so far."""

    cluster: Cluster
    folder: Path
    outputs: list[str] = field(default_factory=list)

    @property
    def stack_file(self) -> Path:
        return self.folder / f"Pulumi.{STACK}.yaml"

    def pulumi(self, *args: str, cwd: Path = paths.PROJECT) -> str:
        return self.record("pulumi", *args, "--stack", STACK, "--non-interactive", cwd=cwd)

    def record(self, *command: str, cwd: Path = paths.PROJECT) -> str:
        """Run a command, keep its output for the search and return its stdout."""
        done = subprocess.run(
            command,
            cwd=cwd,
            env=self.cluster.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S,
        )
        self.outputs.append(done.stdout + done.stderr)
        assert done.returncode == 0, self.outputs[-1]
        return done.stdout

    def pods(self) -> list[dict[str, Any]]:
        text = self.cluster.kubectl(
            "get", "pods", "-n", NAMESPACE, "-l", "trainyard.dev/run=canary", "-o", "json"
        )
        found: list[dict[str, Any]] = json.loads(text)["items"]
        return found


@pytest.fixture(scope="module")
def recorder(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CommandRecorder]:
    folder = tmp_path_factory.mktemp("canary")
    run = yaml.safe_load((paths.PROJECT / "training/runs/drill.yaml").read_text())
    run |= {"name": "canary", "team": TEAM, "nodes": 1, "jobKind": "job", "allowSpot": False}
    few = {"steps": 4, "schedule": {"warmup_steps": 1}, "evaluation": {"every_steps": 4}}
    run |= {"overrides": few, "secrets": ["tracking"]}
    run_file = folder / "canary.yaml"
    run_file.write_text(yaml.safe_dump(run))
    recorder = CommandRecorder(cluster, folder)
    config = {f"trainyard:{key}": value for key, value in _stack(run_file).items()}
    recorder.stack_file.write_text(yaml.safe_dump({"config": config}))
    # Creating a stack writes the salt of a passphrase into the stack file next to Pulumi.yaml.
    shutil.copy(paths.PROJECT / "Pulumi.yaml", folder)
    recorder.record(
        "pulumi", "stack", "init", STACK, "--no-select", "--non-interactive", cwd=folder
    )
    config_file = ["--config-file", str(recorder.stack_file)]
    try:
        recorder.pulumi("up", "--yes", "--skip-preview", *config_file)
        yield recorder
    finally:
        recorder.pulumi("destroy", "--yes", "--skip-preview", *config_file)
        recorder.pulumi("stack", "rm", "--yes", cwd=folder)


def _waits_for_its_secret(recorder: CommandRecorder) -> bool:
    states = [
        status.get("state", {}).get("waiting", {}).get("reason")
        for pod in recorder.pods()
        for status in pod["status"].get("containerStatuses", [])
    ]
    return "CreateContainerConfigError" in states


def _traces(recorder: CommandRecorder) -> list[str]:
    """Return files of the sandbox that contain the value, except etcd's."""
    etcd = recorder.cluster.state.home / "etcd"
    assert any(trace in _bytes(etcd) for trace in TRACES), (
        "the search does not find the value in etcd"
    )
    return [
        str(path)
        for path in recorder.cluster.state.home.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and etcd not in path.parents
        and any(trace in path.read_bytes() for trace in TRACES)
    ]


def _bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_secret_value_reaches_only_the_run(recorder: CommandRecorder) -> None:
    until(lambda: _waits_for_its_secret(recorder), "the run waits for its Secret", RUN_S)
    recorder.cluster.kubectl(
        *("create", "secret", "generic", "tracking", "-n", NAMESPACE),
        f"--from-literal=TRACKING_TOKEN={VALUE}",
    )
    until(
        lambda: [p for p in recorder.pods() if p["status"]["phase"] == "Succeeded"],
        "the run has trained to its end",
        RUN_S,
    )
    # A machine so busy that the Secret came late has sent the run back to its queue meanwhile.
    [pod] = [p for p in recorder.pods() if p["status"]["phase"] == "Succeeded"]
    [variable] = [
        one for one in pod["spec"]["containers"][0]["env"] if one["name"] == "TRACKING_TOKEN"
    ]
    source = {"secretKeyRef": {"name": "tracking", "key": "TRACKING_TOKEN"}}
    assert variable == {"name": "TRACKING_TOKEN", "valueFrom": source}

    config_file = ["--config-file", str(recorder.stack_file)]
    recorder.pulumi("preview", "--diff", *config_file)
    recorder.pulumi("refresh", "--yes", *config_file)
    recorder.pulumi("stack", "output", "--json", "--show-secrets")
    recorder.pulumi("stack", "export", "--show-secrets")
    recorder.outputs.append(json.dumps(render(STACK, stack_values(recorder.stack_file))))
    recorder.record("kubectl", "describe", "pods,jobs,workloads", "-n", NAMESPACE)
    recorder.record("kubectl", "get", "events,pods,jobs,configmaps", "-n", NAMESPACE, "-o", "yaml")
    recorder.record("kubectl", "logs", "-n", NAMESPACE, pod["metadata"]["name"])

    leak = recorder.cluster.state.logs / "leak.log"
    leak.write_bytes(b"Authorization: Basic " + TRACES[1])
    assert _traces(recorder) == [str(leak)]
    leak.unlink()
    assert _traces(recorder) == []
    assert not [
        text for text in recorder.outputs if any(trace in text.encode() for trace in TRACES)
    ]
