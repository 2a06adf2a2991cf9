"""metrics.jsonl has each completed step exactly once, in order, however often a run restarts."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainyard import run_logs
from trainyard.run_logs import EventLog, MetricsLog, StepMetrics, entries_from_end


def metrics(step: int, loss: float = 0.1, attempt: int = 1) -> StepMetrics:
    return StepMetrics(
        step=step,
        loss=loss,
        tokens=8,
        lr=0.1,
        step_time_s=0.1,
        loader_time_s=0.0,
        attempt=attempt,
        time=1000.0 + step,
        tokens_per_s=80.0,
        samples_per_s=10.0,
        mfu=None,
        grad_norm=1.0,
        collective_time_s=0.01,
        checkpoint_stall_s=0.02,
    )


def write(file: Path, first: int, last: int, *, resumed: int, attempt: int = 1) -> None:
    log = MetricsLog(file, resumed, enabled=True)
    for step in range(first, last + 1):
        log.append(metrics(step, attempt=attempt))
    log.close()


def steps_in(file: Path) -> list[tuple[int, int]]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [(line["step"], line["attempt"]) for line in lines]


def test_a_resumed_run_replaces_the_steps_that_it_does_again(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    write(file, 1, 7, resumed=0)
    write(file, 5, 9, resumed=4, attempt=2)
    assert steps_in(file) == [(s, 1) for s in range(1, 5)] + [(s, 2) for s in range(5, 10)]


def test_only_the_end_of_a_long_log_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, parsed = tmp_path / "metrics.jsonl", []
    write(file, 1, 300, resumed=0)
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole) + whole[0][:40])

    def loads(text: str) -> object:
        parsed.append(text)
        return json.loads(text)

    monkeypatch.setattr(run_logs, "json", SimpleNamespace(loads=loads, dumps=json.dumps))
    log = MetricsLog(file, 298, enabled=True)
    log.append(metrics(299, attempt=2))
    log.close()
    assert len(parsed) == 3
    assert (log.missing, [entry["steps"] for entry in log.dropped]) == (0, [2])
    assert file.read_bytes().splitlines(keepends=True)[:298] == whole[:298]
    assert steps_in(file)[298:] == [(299, 2)]


@pytest.mark.parametrize("damage", ["a line is missing", "a line is cut", "a line is there twice"])
def test_a_log_that_is_damaged_before_its_end_is_read_whole(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "metrics.jsonl"
    write(file, 1, 9, resumed=0)
    lines = file.read_bytes().splitlines(keepends=True)
    lines[3:4] = {
        "a line is missing": [],
        "a line is cut": [lines[3][:50] + b"\n"],
        "a line is there twice": [lines[3], lines[3]],
    }[damage]
    file.write_bytes(b"".join(lines))
    log = MetricsLog(file, 8, enabled=True)
    log.close()
    whole = damage == "a line is there twice"
    assert log.missing == (0 if whole else 1)
    assert [step for step, _ in steps_in(file)] == [s for s in range(1, 9) if whole or s != 4]


@pytest.mark.parametrize("block", [1, 7, 64, 65536])
def test_entries_are_read_from_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(run_logs, "_TAIL_BYTES", block)
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f'{{"step": {step}}}\n' for step in range(20)) + '{"step": 2')
    assert [entry["step"] for entry in entries_from_end(file)] == list(range(19, -1, -1))
    file.write_text("")
    assert list(entries_from_end(file)) == []


def test_what_the_dropped_steps_had_cost_is_told_by_the_attempt_that_made_them(
    tmp_path: Path,
) -> None:
    file = tmp_path / "metrics.jsonl"
    write(file, 1, 4, resumed=0)
    write(file, 4, 7, resumed=3, attempt=2)
    third = MetricsLog(file, 2, enabled=True)
    assert third.dropped == [
        {"attempt": 1, "steps": 1, "seconds": pytest.approx(0.12), "until": 1003.0},
        {"attempt": 2, "steps": 4, "seconds": pytest.approx(0.48), "until": 1007.0},
    ]
    assert MetricsLog(file, 2, enabled=True).dropped == []


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    write(file, 1, 3, resumed=0)
    with file.open("a") as stream:
        stream.write('{"step": 4, "lo')
    write(file, 4, 5, resumed=3, attempt=2)
    assert [step for step, _ in steps_in(file)] == [1, 2, 3, 4, 5]


def test_a_replaced_attempt_writes_where_nobody_reads(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    stale = MetricsLog(file, 0, enabled=True)
    stale.append(metrics(1))
    fresh = MetricsLog(file, 1, enabled=True)
    stale.append(metrics(2))
    fresh.append(metrics(2, attempt=2))
    assert steps_in(file) == [(1, 1), (2, 2)]


def test_a_line_that_does_not_fit_is_an_error_and_not_a_gap(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "m", 0, enabled=True)
    log.append(metrics(1))
    size = (tmp_path / "m").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
    try:
        with pytest.raises(OSError, match="a line was cut"):
            log.append(metrics(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    log.close()
    write(tmp_path / "m", 2, 2, resumed=1, attempt=2)
    assert steps_in(tmp_path / "m") == [(1, 1), (2, 2)]


def test_events_say_what_when_and_by_which_attempt_and_only_grow(tmp_path: Path) -> None:
    for attempt in (1, 2):
        events = EventLog(tmp_path / "e", attempt, enabled=True)
        events.write("started", 3, total_steps=9)
        events.close()
    first, second = (json.loads(line) for line in (tmp_path / "e").read_text().splitlines())
    assert first["time"] <= second["time"]
    assert (first["event"], first["step"], first["total_steps"]) == ("started", 3, 9)
    assert (first["attempt"], second["attempt"]) == (1, 2)


def test_who_listens_late_hears_the_beginning_once_and_in_order(tmp_path: Path) -> None:
    events = EventLog(tmp_path / "e", 1, enabled=True)
    heard: list[str] = []
    events.write("checkpoint_corrupt", 8)
    events.write("resumed", 4)
    events.listen(lambda entry: heard.append(entry["event"]))
    events.write("evaluated", 5)
    assert heard == ["checkpoint_corrupt", "resumed", "evaluated"]
    events.listen(None)
    events.write("finished", 9)
    assert len(heard) == 3
