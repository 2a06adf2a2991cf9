"""A real MLflow server, started as the add-on starts it: read-only, with one folder, from its own packages."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.addons import mlflow
from infra.domain import naming
from sandbox.ports import LOOPBACK, free_port
from sandbox.process import spawn
from tests.trainer.ranks import until
from tests.trainer.test_program_tracking import sent, start

pytestmark = pytest.mark.timeout(3600)

REQUIREMENTS = Path(__file__).with_name("mlflow-server.txt")
READY_S = 300.0
ARTIFACT = "/api/2.0/mlflow-artifacts/artifacts/weights/model.bin"


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's environment, from the pinned hashes."""
    if not request.config.getoption("--full"):
        pytest.skip("--full: installs MLflow's server, 1 GB")
    home = tmp_path_factory.mktemp("mlflow-server")
    options = ["--require-hashes", "--only-binary", ":all:", "-r", str(REQUIREMENTS)]
    for argv in (
        [sys.executable, "-m", "venv", str(home)],
        [str(home / "bin/pip"), "install", "-q", *options],
    ):
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2400,
            check=False,
        )
        if done.returncode and "No matching distribution" in done.stderr:
            pytest.skip(f"no package index: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
    return home


Serve = Callable[[], AbstractContextManager[str]]


@pytest.fixture
def serve(program: Path, tmp_path: Path) -> Serve:
    """Runs the pod's command with the pod's view of files; the volume outlives it."""
    volume = tmp_path / "volume"
    volume.mkdir()

    @contextmanager
    def running() -> Iterator[str]:
        port, log = free_port(), tmp_path / "log"
        pod = deployment()["spec"]["template"]["spec"]
        [container] = pod["containers"]
        name, *arguments = container["command"]
        command = [
            f"--host={LOOPBACK}"
            if word.startswith("--host=")
            else word.replace(str(naming.MLFLOW_PORT), str(port))
            for word in arguments
        ]
        view = ["bwrap", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev"]
        view += ["--proc", "/proc", "--tmpfs", "/tmp", "--ro-bind", str(program), str(program)]
        view += ["--bind", str(volume), "/tmp/data", "--chdir", container["workingDir"]]
        env = {one["name"]: one["value"] for one in container["env"]}
        # A folder /data needs root.
        command = [word.replace("//data/", "//tmp/data/") for word in command]
        command = [word.replace("=/data/", "=/tmp/data/") for word in command]
        server = spawn(
            [*view, "--", str(program / "bin" / name), *command],
            env | {"PATH": f"{program}/bin:/usr/bin:/bin"},
            tmp_path,
            log,
        )
        uri = f"http://{LOOPBACK}:{port}"

        def healthy() -> bool:
            assert server.alive, log.read_text()[-4000:]
            try:
                urllib.request.urlopen(uri + container["livenessProbe"]["httpGet"]["path"]).close()
            except OSError:
                return False
            return True

        try:
            until(healthy, "the server answers", READY_S)
            yield uri
        finally:
            server.end(30.0)

    return running


def deployment() -> dict[str, Any]:
    plan = mlflow.plan(mlflow.MlflowArgs(image="registry.example.com/mlflow@sha256:" + "0" * 64))
    [found] = [one for one in plan.objects if one["kind"] == "Deployment"]
    return found


def test_what_a_run_logged_outlives_the_server(serve: Serve, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with serve() as uri:
        assert start(run, uri, "1", "4", "0").wait(READY_S) == 0
        before = sent(uri, run)
        upload = urllib.request.Request(uri + ARTIFACT, data=b"weights", method="PUT")
        urllib.request.urlopen(upload, timeout=60).close()
    assert before["status"] == "FINISHED"
    with serve() as uri:
        assert json.dumps(sent(uri, run)) == json.dumps(before)
        assert urllib.request.urlopen(uri + ARTIFACT, timeout=60).read() == b"weights"
    assert (tmp_path / "volume/artifacts/weights/model.bin").read_bytes() == b"weights"


def test_the_server_answers_to_the_name_that_runs_use_and_to_no_other(serve: Serve) -> None:
    with serve() as uri:
        host, _, port = uri.removeprefix("http://").partition(":")

        def status(name: str) -> int:
            connection = http.client.HTTPConnection(host, int(port), timeout=60)
            path = "/api/2.0/mlflow/experiments/get?experiment_id=0"
            connection.request("GET", path, headers={"Host": name})
            return connection.getresponse().status

        names = (naming.MLFLOW_HOST, f"{naming.MLFLOW_HOST}.cluster.local", "10.1.2.3", "localhost")
        assert {name: status(f"{name}:{port}") for name in names} == dict.fromkeys(names, 200)
        assert status(f"mlflow.example.com:{port}") == 403
