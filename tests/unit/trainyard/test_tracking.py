"""Everything of a run reaches MLflow once, however often the server or the program goes away."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST

from trainyard import tracking
from trainyard.tracking import _STEP_KEYS, MlflowSync, _Tail, read_cursor


class Server:
    """In place of MLflow's client: records what arrives, and fails on request."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.calls = 0
        self.failing: frozenset[int] | None = frozenset()
        """Numbers of the calls that fail; None: all."""
        self.after = False
        """Fail after the work was done, as a lost answer looks like."""
        self.text = "away"

    def get_run(self, run_id: str) -> Any:
        self._call()
        if run_id not in self.runs:
            raise MlflowException("no such run", RESOURCE_DOES_NOT_EXIST)
        return SimpleNamespace(info=SimpleNamespace(lifecycle_stage="active"))

    def get_experiment_by_name(self, name: str) -> Any:
        self._call()
        return SimpleNamespace(experiment_id=name)

    def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> Any:
        self._call()
        made: dict[str, Any] = {"experiment": experiment, "name": run_name, "tags": tags}
        made |= {"points": set(), "sent": 0, "parameters": {}, "status": None}
        self.runs[run_id := f"run{len(self.runs)}"] = made
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def log_batch(
        self, run_id: str, metrics: list[Metric] | None = None, params: list[Param] | None = None
    ) -> None:
        if not self.after:
            self._call()
        run = self.runs[run_id]
        assert len(metrics or []) <= 1000 and len(params or []) <= 100
        run["points"] |= {(m.key, m.value, m.timestamp, m.step) for m in metrics or []}
        run["sent"] += len(metrics or [])
        run["parameters"].update({p.key: p.value for p in params or []})
        if self.after:
            self._call()

    def update_run(self, run_id: str, status: str) -> None:
        self._call()
        self.runs[run_id]["status"] = status

    set_terminated = update_run

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        self._call()
        self.runs[run_id]["tags"][key] = value

    def _call(self) -> None:
        self.calls += 1
        if self.failing is None or self.calls in self.failing:
            raise ConnectionError(self.text)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    connect(monkeypatch, found)
    return found


def connect(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setattr(mlflow, "MlflowClient", lambda tracking_uri: server)


def sync(run_dir: Path, uri: str = "http://x") -> MlflowSync:
    return MlflowSync(run_dir, uri)


def add(file: Path, *lines: dict[str, Any]) -> None:
    with file.open("a") as stream:
        stream.writelines(json.dumps(line) + "\n" for line in lines)


def a_run(folder: Path, steps: int, first: int = 1, attempt: int = 1) -> None:
    config = {"steps": steps, "model": {"layers": 2}}
    base = {"attempt": attempt, "step": 0}
    add(folder / "events.jsonl", {"event": "started", "time": 1.0, "config": config, **base})
    for step in range(first, steps + 1):
        line = dict.fromkeys(_STEP_KEYS, 1.5) | {"step": step, "loss": 1 / step, "mfu": None}
        line["time"] = attempt * 1000.0 + step
        add(folder / "metrics.jsonl", line)
    add(folder / "events.jsonl", {"event": "evaluated", "time": 2.0, "loss": 0.5, **base})


def losses(server: Server, run: str = "run0") -> dict[int, float]:
    found = [p for p in server.runs[run]["points"] if p[0] == "loss"]
    assert len(found) == len({step for _, _, _, step in found})
    return {step: value for _, value, _, step in found}


@pytest.mark.parametrize("after", [False, True])
def test_a_server_that_goes_away_at_any_call_gets_everything_once(
    tmp_path: Path, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 14):
        folder = tmp_path / str(number)
        folder.mkdir()
        a_run(folder, 300)
        connect(monkeypatch, server := Server())
        server.after, server.failing = after, frozenset({number})
        assert sync(folder).finish(60.0)
        assert len(losses(server, f"run{len(server.runs) - 1}")) == 300


def test_another_server_and_one_that_lost_the_run_get_the_whole_run(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(tmp_path, 5)
    sync(tmp_path).send()
    connect(monkeypatch, other := Server())
    other.create_run("e", "another run of the same id", {})
    sync(tmp_path, "http://y").send()
    assert len(losses(other, "run1")) == 5 and not losses(other, "run0")
    connect(monkeypatch, fresh := Server())
    sync(tmp_path, "http://y").send()
    assert len(losses(fresh)) == 5


def test_a_server_that_never_answers_is_named_once_without_secrets(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken")
    a_run(tmp_path, 5)
    server.failing, server.text = None, "refused\nBearer t0ken"
    assert not sync(tmp_path).finish(0.5)
    said = capsys.readouterr().err
    assert said == "mlflow: http://x: refused Bearer ***; the run directory keeps all metrics\n"
    assert server.calls > 2


def test_the_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    a_run(tmp_path, 1)
    assert not sync(tmp_path).send()
    assert "; required is the package mlflow-skinny; pip install" in capsys.readouterr().err


def test_a_damaged_cursor_starts_over(tmp_path: Path) -> None:
    (tmp_path / "mlflow.json").write_text('{"uri": "http://x", "run')
    assert read_cursor(tmp_path) == {}


def test_a_line_is_read_once_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "f"
    tail = _Tail(file)

    def lines() -> list[dict[str, Any]]:
        found, tail.at = tail.read()
        return found

    assert lines() == []
    file.write_text('{"a": 1}\n{"a"')
    assert lines() == [{"a": 1}]
    assert lines() == []
    with file.open("a") as stream:
        stream.write(": 2}\nnot json\n{}\n")
    assert lines() == [{"a": 2}, {}]


URIS = "must be sqlite:///FILE, http://SERVER or https://SERVER; correct it"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["nowhere", "--uri", "http://x"],
            "RUN_DIR: nowhere is not a folder; name a run directory",
        ),
        ([".", "--uri", ""], f"--uri: '' is not a tracking URI; {URIS}"),
        ([".", "--uri", "mlruns"], f"--uri: 'mlruns' is not a tracking URI; {URIS}"),
    ],
)
def test_an_invalid_run_or_server_is_one_line(
    arguments: list[str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["tracking", *arguments])
    with pytest.raises(SystemExit) as ended:
        tracking.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {expected}")
