"""Everything of a run reaches MLflow once, however often the server or the trainer goes away."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from training.tracking.__main__ import main
from trainyard.tracking.mlflow_sync import _STEP_KEYS, Cursor, MlflowSync, Point, mlflow_status
from trainyard.tracking.sending import exclusive, finish
from trainyard.tracking.tail import Tail


class Recorder:
    """A server that records its calls and fails on request."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.failures = 0
        """So many of the next calls fail."""
        self.after = False
        """Fail after the work was done, as a lost answer looks like."""

    def has_run(self, run_id: str) -> bool:
        self._fail()
        return run_id in self.runs

    def create_run(self, experiment: str, name: str, tags: Mapping[str, str]) -> str:
        self._fail()
        run_id = f"run{len(self.runs)}"
        self.runs[run_id] = {"experiment": experiment, "name": name, "tags": dict(tags)}
        self.runs[run_id].update(points=set(), sent=0, parameters={}, status=None)
        return run_id

    def log_params(self, run_id: str, parameters: Mapping[str, str]) -> None:
        self._fail()
        known = self.runs[run_id]["parameters"]
        assert all(known.get(key, value) == value for key, value in parameters.items())
        known.update(parameters)

    def log_metrics(self, run_id: str, points: Sequence[Point]) -> None:
        if not self.after:
            self._fail()
        assert len(points) <= 1000
        self.runs[run_id]["points"] |= set(points)
        self.runs[run_id]["sent"] += len(points)
        if self.after:
            self._fail()

    def set_status(self, run_id: str, status: str) -> None:
        self._fail()
        self.runs[run_id]["status"] = status

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("away")


def sender(run_dir: Path, server: Recorder, uri: str = "http://x") -> MlflowSync:
    return MlflowSync(
        server=server, run_dir=run_dir, uri=uri, experiment="e", name="n", tags={"a": "b"}
    )


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


def losses(server: Recorder, run: str = "run0") -> dict[int, float]:
    points = [p for p in server.runs[run]["points"] if p.key == "loss"]
    assert len(points) == len({p.step for p in points})
    return {p.step: p.value for p in points}


def test_every_step_arrives_with_its_own_time_and_nothing_is_made_up(tmp_path: Path) -> None:
    a_run(tmp_path, 400)
    server = Recorder()
    sender(tmp_path, server).send()
    assert losses(server) == {step: 1 / step for step in range(1, 401)}
    run = server.runs["run0"]
    assert Point("loss", 0.2, 1005000, 5) in run["points"]
    assert not any(p.key == "mfu" for p in run["points"])
    assert Point("evaluation_loss", 0.5, 2000, 0) in run["points"]
    assert run["parameters"] == {"steps": "400", "model.layers": "2"}
    assert (run["experiment"], run["name"], run["tags"]) == ("e", "n", {"a": "b"})


def test_what_comes_later_is_sent_later_and_only_that(tmp_path: Path) -> None:
    server, run = Recorder(), sender(tmp_path, Recorder())
    run = sender(tmp_path, server)
    assert run.send() == 0
    a_run(tmp_path, 3)
    assert run.send() == 3 * (len(_STEP_KEYS) - 1) + 1
    assert run.send() == 0
    add(tmp_path / "metrics.jsonl", {"step": 4, "loss": 0.25, "time": 1004.0})
    assert run.send() == 1


@pytest.mark.parametrize("after", [False, True])
def test_a_server_that_goes_away_at_any_call_gets_everything_once(
    tmp_path: Path, after: bool
) -> None:
    for skipped in range(12):
        folder = tmp_path / str(skipped)
        folder.mkdir()
        a_run(folder, 300)
        server = Recorder()
        server.after = after
        run = sender(folder, server)
        calls = iter([False] * skipped + [True])
        plain = server._fail

        def sometimes(calls: Any = calls, server: Recorder = server, plain: Any = plain) -> None:
            server.failures = 1 if next(calls, False) else 0
            plain()

        server._fail = sometimes  # type: ignore[method-assign]
        assert finish(run, 60.0)
        assert len(losses(server, f"run{len(server.runs) - 1}")) == 300


def test_the_next_attempt_goes_on_in_the_same_run(tmp_path: Path) -> None:
    server = Recorder()
    a_run(tmp_path, 5)
    sender(tmp_path, server).send()
    (tmp_path / "metrics.jsonl").unlink()  # replaced by one that keeps steps 1 to 3
    for step in (1, 2, 3):
        add(tmp_path / "metrics.jsonl", {"step": step, "loss": 1 / step, "time": 1000.0 + step})
    a_run(tmp_path, 7, first=4, attempt=2)
    sender(tmp_path, server).send()
    assert list(server.runs) == ["run0"]
    assert losses(server) == {step: 1 / step for step in range(1, 8)}


def test_another_server_gets_the_whole_run(tmp_path: Path) -> None:
    a_run(tmp_path, 5)
    sender(tmp_path, Recorder()).send()
    other = Recorder()
    other.create_run("e", "another run of the same id", {})
    sender(tmp_path, other, "http://y").send()
    assert len(losses(other, "run1")) == 5
    assert not losses(other, "run0")


def test_a_run_that_the_server_lost_is_made_again(tmp_path: Path) -> None:
    a_run(tmp_path, 5)
    sender(tmp_path, Recorder()).send()
    fresh = Recorder()
    sender(tmp_path, fresh).send()
    assert len(losses(fresh)) == 5


def test_a_server_that_never_answers_costs_no_more_than_the_time_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path, 5)
    server = Recorder()
    server.failures = 10**9
    assert not finish(sender(tmp_path, server), 0.5)
    assert "mlflow: http://x: away; the run directory keeps all metrics" in capsys.readouterr().err


def test_one_process_sends_a_run_at_a_time(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with exclusive(tmp_path):
            order.append("second")

    thread = threading.Thread(target=second)
    with exclusive(tmp_path):
        thread.start()
        thread.join(timeout=0.2)
        order.append("first")
    thread.join(timeout=10)
    assert order == ["first", "second"]


def test_a_damaged_cursor_starts_over(tmp_path: Path) -> None:
    (tmp_path / "mlflow.json").write_text('{"uri": "http://x", "run')
    assert Cursor.read(tmp_path) is None


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ({"event": "finished", "reason": "done"}, "FINISHED"),
        ({"event": "finished", "reason": "preempted"}, "SCHEDULED"),
        ({"event": "finished", "reason": "not saved"}, "FAILED"),
        ({"event": "failed"}, "FAILED"),
        ({"event": "checkpoint_commit"}, "FAILED"),
    ],
)
def test_the_status_follows_the_newest_event(event: dict[str, str], status: str) -> None:
    assert mlflow_status(event) == status


def test_a_line_is_read_once_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "f"
    tail = Tail(file)
    assert tail.lines(9) == []
    file.write_text('{"a": 1}\n{"a"')
    assert tail.lines(9) == [{"a": 1}]
    assert tail.lines(9) == []
    with file.open("a") as stream:
        stream.write(": 2}\nnot json\n{}\n")
    assert tail.lines(1) == [{"a": 2}]
    assert tail.lines(9) == [{}]


URIS = "must be sqlite:///FILE, http://SERVER or https://SERVER; correct it"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["nowhere", "--uri", "sqlite:///x"],
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
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {expected}")
