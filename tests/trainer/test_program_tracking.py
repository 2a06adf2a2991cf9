"""What a program logs reaches MLflow's own server code, with its end; a dead server stops nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.ports import free_port
from tests.trainer.outcome_programs import ROOT
from tests.trainer.ranks import DEADLINE_S, until

pytestmark = pytest.mark.long(25)
RUN_ID = "sft-v1-0a1b2c3d"
PROGRAM = """
import pathlib, sys, time
import trainyard

first, last, end = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
for step in range(first, last + 1):
    trainyard.log(step=step, loss=float("nan") if step == 3 else 1 / step, tokens=10)
pathlib.Path("logged").touch()
while end == "wait":
    if trainyard.notice.requested():
        trainyard.exit_preempted()
    time.sleep(0.05)
sys.exit(int(end))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MLflow's REST handlers over sqlite; yields the URI."""
    folder = tmp_path_factory.mktemp("mlflow")
    own = {
        "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{folder}/mlflow.db",
        "_MLFLOW_SERVER_ARTIFACT_ROOT": str(folder / "artifacts"),
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        from flask import Flask
        from mlflow.server import handlers
        from werkzeug.serving import make_server

        app = Flask("mlflow")
        for path, handler, methods in handlers.get_endpoints():  # type: ignore[no-untyped-call]
            app.add_url_rule(path, path + "".join(methods), handler, methods=methods)
        http = make_server("127.0.0.1", 0, app, threaded=True)
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join(DEADLINE_S)


def start(folder: Path, uri: str, *words: str, notice_s: int = 90) -> subprocess.Popen[bytes]:
    """Start a node of one rank; `notice_s`: from SIGTERM to the hard end."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(PROGRAM)
    program = {"launcher": "python", "command": [str(folder / "train.py"), *words]}
    (folder / "program.json").write_text(json.dumps(program))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINYARD_", "_MLFLOW"))}
    env |= {"PYTHONPATH": str(ROOT), "TRAINYARD_RUN_DIR": str(folder), "TRAINYARD_RUN_ID": RUN_ID}
    env |= {"TRAINYARD_TRACKING_URI": uri, "TRAINYARD_TEAM": "nlp"}
    env |= {"TRAINYARD_NOTICE_SECONDS": str(notice_s)}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "trainyard.launch", "--program", str(folder / "program.json")],
            env=env,
            cwd=folder,
            stderr=log,
        )


def sent(server: str, folder: Path) -> dict[str, object]:
    """What the server has of the run: status, tags and the history of its loss by step."""
    from mlflow import MlflowClient

    api = MlflowClient(tracking_uri=server)
    run_id = json.loads((folder / "mlflow.json").read_text())["run_id"]
    run = api.get_run(run_id)
    return {
        "status": run.info.status,
        "name": run.info.run_name,
        "tags": run.data.tags,
        "parameters": run.data.params,
        "loss": {one.step: one.value for one in api.get_metric_history(run_id, "loss")},
    }


def test_attempts_of_a_program_are_one_run_with_all_steps(server: str, tmp_path: Path) -> None:
    node = start(tmp_path, server, "1", "4", "wait")
    until(lambda: (tmp_path / "logged").exists(), "the first attempt's steps")
    node.send_signal(signal.SIGTERM)
    assert node.wait(DEADLINE_S) == 75
    assert sent(server, tmp_path)["status"] == "SCHEDULED"
    assert start(tmp_path, server, "5", "6", "3").wait(DEADLINE_S) == 3
    assert sent(server, tmp_path)["status"] == "FAILED"
    assert start(tmp_path, server, "7", "8", "0").wait(DEADLINE_S) == 0
    found = sent(server, tmp_path)
    assert (found["status"], found["name"]) == ("FINISHED", RUN_ID)
    tags = {key.rpartition(".")[2]: value for key, value in found["tags"].items()}  # type: ignore[attr-defined]
    assert tags.pop("runName") == RUN_ID
    assert tags == {"run_id": RUN_ID, "team": "nlp", "status": "FINISHED"}
    expected = {step: 1 / step for step in range(1, 9)} | {3: "NaN"}
    assert {k: "NaN" if v != v else v for k, v in found["loss"].items()} == expected  # type: ignore[attr-defined]


def test_a_program_that_logs_nothing_makes_no_run(server: str, tmp_path: Path) -> None:
    assert start(tmp_path, server, "1", "0", "0").wait(DEADLINE_S) == 0
    assert not (tmp_path / "mlflow.json").exists()


def test_a_dead_server_changes_neither_the_end_nor_the_metrics(tmp_path: Path) -> None:
    node = start(tmp_path, f"http://127.0.0.1:{free_port()}", "1", "4", "wait", notice_s=12)
    until(lambda: (tmp_path / "logged").exists(), "all steps")
    node.send_signal(signal.SIGTERM)
    assert node.wait(DEADLINE_S) == 75
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 4
    assert "the run directory keeps all metrics" in (tmp_path / "log").read_text()
