"""A run reported to Prometheus and MLflow, interrupted and compared."""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from sandbox.ports import free_port
from tests.trainer.ranks import RunFiles, until
from tests.trainer.runs import Trainer, assert_same
from trainyard.contract import METRICS_ADDRESS_ENV, METRICS_PORT_ENV

pytestmark = pytest.mark.long(33)


def scrape(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def serve_at(port: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have runs serve their metrics at this port of loopback."""
    monkeypatch.setenv(METRICS_PORT_ENV, str(port))
    monkeypatch.setenv(METRICS_ADDRESS_ENV, "127.0.0.1")
    return port


def query(database: Path, sql: str) -> list[tuple[Any, ...]]:
    if not database.exists():
        return []
    with sqlite3.connect(database, timeout=30) as connection:
        try:
            return connection.execute(sql).fetchall()
        except sqlite3.OperationalError:  # not made yet
            return []


def test_an_interrupted_run_is_one_run_in_mlflow_and_loses_no_bit(
    trainer: Trainer, control: RunFiles
) -> None:
    """MLflow's tables are read directly, since its client takes seconds to import."""
    database = trainer.root / "mlflow.db"
    settings = [f"report.mlflow=sqlite:///{database}", "report.mlflow_experiment=tests"]
    files = trainer.files("run")
    ranks = trainer.stop("run", 9, *settings, to=[0])
    assert ranks.wait() == [75, 75], ranks.output()
    # The next attempt begins while the first one's process is still sending.
    assert trainer.run("run", *settings) == [0, 0]
    until(lambda: query(database, "select 1 from runs where status = 'FINISHED'"), "its end")
    assert_same(files, control)
    ((run, name),) = query(database, "select run_uuid, name from runs")
    assert name == "run"
    assert json.loads((files.path / "mlflow.json").read_text())["run_id"] == run
    sent = query(database, "select step, value from metrics where key = 'loss' order by step")
    assert sent == list(enumerate(files.losses(), start=1))
    resumed = query(database, "select value from metrics where key = 'resumed_attempt'")
    assert resumed == [(2.0,)]
    parameters = dict(query(database, "select key, value from params"))
    assert parameters["optimizer.learning_rate"] == "0.01"


def test_prometheus_sees_the_run_while_it_trains(
    trainer: Trainer, control: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = serve_at(free_port(), monkeypatch)
    files = trainer.files("run")
    ranks = trainer.start("run", "steps=2000")
    text = until(lambda: (t := scrape(port)) and "trainyard_loss_nats" in t and t, "a scrape")
    assert 'run_id="run"' in text
    until(lambda: 'event="checkpoint_commit"' in scrape(port), "a checkpoint")
    ranks.signal(signal.SIGTERM)
    assert ranks.wait() == [75, 75]
    assert files.losses()[:1] == control.losses()[:1]
    assert scrape(port) == ""
    again = trainer.start("run", "steps=2000")
    text = until(lambda: (t := scrape(port)) and "trainyard_loss_nats" in t and t, "the resume")
    for name in ("due", "done"):
        assert re.search(rf"^trainyard_resumes_{name}{{.*}} 1.0$", text, re.MULTILINE), name
    assert "trainyard_volume_sync_seconds{" in text
    again.signal(signal.SIGTERM)
    assert again.wait() == [75, 75]


def test_an_occupied_port_is_logged_and_does_not_stop_the_run(
    trainer: Trainer, control: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = serve_at(taken.getsockname()[1], monkeypatch)
        ranks = trainer.start("run", world=2)
        assert ranks.wait() == [0, 0]
    assert f"cannot serve Prometheus metrics at 127.0.0.1:{port}" in ranks.output()
    assert_same(trainer.files("run"), control)


def test_steps_are_profiled_on_request_and_lose_no_bit(trainer: Trainer, control: RunFiles) -> None:
    files = trainer.files("run")
    files.path.mkdir()
    (files.path / "profile").write_text("3")
    ranks = trainer.start("run")
    assert ranks.wait() == [0, 0], ranks.output()
    assert ranks.output().count("profile: steps 2 to 4: ") == 1
    assert sorted(path.name for path in (files.path / "profiles").iterdir()) == [
        "step-00000002.json.gz",
        "step-00000002.txt",
    ]
    assert_same(files, control)
