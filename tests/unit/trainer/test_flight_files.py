"""The files of the flight recorder: rings that outlive their rank, reports, and verdicts."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from training.trainer.flight.judge import Beats, Judge
from training.trainer.flight.process import dumped_frame, neighbour
from training.trainer.flight.recorder import Recorder, StepTimes
from training.trainer.flight.recording import open_ring
from training.trainer.flight.reports import Board, Report, Team, attempt_label, view_label
from training.trainer.flight.ring import (
    Mark,
    Phase,
    process_state,
    read_ring,
    remove_old_rings,
    ring_file,
    ring_folder,
)
from training.trainer.flight.shares import Window
from training.trainer.flight.watchdog import Patience, Watchdog
from trainyard.contract import CULPRIT_LINE
from trainyard.culprits import HUNG, Culprit, Verdicts, parse_line

CULPRIT = Culprit(
    symptom=HUNG,
    rank=3,
    node="spot-1",
    pod="hello-0-1",
    step=41,
    attempt=2,
    time=1000.5,
    what="does not answer",
    evidence=("its process is stopped",),
    frame="loop.py:9 train",
)


def dead_rank(run_dir: Path, marked: int) -> int:
    """A process that records, and is killed; return its process id."""
    pid = os.fork()
    if pid == 0:
        recorder = Recorder(open_ring(run_dir, 1))
        recorder.issued = lambda: 7
        for step in range(1, marked + 1):
            recorder.enter(Phase.LOADER, step)
            recorder.enter(Phase.PASSES)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    return pid


def test_the_marks_of_a_killed_rank_can_be_read(tmp_path: Path) -> None:
    pid = dead_rank(tmp_path, 300)
    (file,) = ring_folder(tmp_path).glob("rank-*")
    identity, marks = read_ring(file)
    assert (identity.rank, identity.pid) == (1, pid)
    assert [mark.number for mark in marks] == list(range(600 - 255, 601))
    assert (marks[-1].step, marks[-1].phase, marks[-1].issued) == (300, Phase.PASSES, 7)
    assert process_state(identity) == ""
    seen = neighbour(file, tmp_path / "none")
    assert seen is not None and seen.startswith(
        f"its process has ended (pid {pid}); in the forward"
    )
    remove_old_rings(tmp_path)
    assert list(ring_folder(tmp_path).glob("*")) == []


def test_the_ring_of_a_living_rank_stays_until_it_ends(tmp_path: Path) -> None:
    recorder = Recorder(open_ring(tmp_path, 0))
    remove_old_rings(tmp_path)
    assert process_state(read_ring(ring_file(tmp_path, 0))[0]) == "R"
    recorder.close()
    assert not ring_folder(tmp_path).exists()


def test_a_phase_that_took_long_once_is_forgotten(tmp_path: Path) -> None:
    recorder = Recorder()
    for step in range(1, 6):
        recorder.enter(Phase.LOADER, step)
    recorder.since_ns -= 10**10
    recorder.enter(Phase.PASSES)
    assert recorder.longest[Phase.LOADER] >= 10**10
    for step in range(6, 5000):
        recorder.enter(Phase.LOADER, step)
        recorder.enter(Phase.PASSES)
    assert recorder.longest[Phase.LOADER] < 10**9


def test_a_rank_that_waits_in_a_comparison_is_ahead_of_one_that_is_not_there_yet() -> None:
    """A comparison is an exchange, too; otherwise a rank that hangs before one would not be behind the others."""
    waits, hangs = Recorder(), Recorder()
    for recorder in (waits, hangs):
        for phase in (Phase.LOADER, Phase.PASSES, Phase.AGREE, Phase.UPDATE):
            recorder.enter(phase, 5 if phase is Phase.LOADER else None)
    waits.enter(Phase.BETWEEN)
    waits.enter(Phase.COMPARE)
    assert (waits.exchanges, hangs.exchanges) == (2, 1)
    waits.restart()
    assert waits.exchanges == 0


def test_a_phase_may_last_three_times_as_long_as_usual_but_not_until_ranks_give_up() -> None:
    patience = Patience(
        hang_after_s=20, window_s=5, start_limit_s=1200, collective_timeout_s=120, world=2
    )
    assert patience.allowed_s(1e9) == 20
    assert patience.allowed_s(10e9) == 30
    assert patience.allowed_s(60e9) == 90
    assert patience.allowed_s(None) == 90
    assert patience.allowed_s(None, starting=True) == 900  # compilation takes minutes


def test_reports_are_read_as_they_were_written(tmp_path: Path) -> None:
    board = Board(tmp_path, attempt_label(3))
    report = Report(
        rank=1,
        host="h",
        node="n",
        pod="p",
        beat=9,
        marks=(Mark(1, 2, 3, 4, 5),),
        frames=("a.py:1 f",),
        silent={0: "its process is stopped"},
        window=Window({8: (0.5, 0.25, 0.125)}),
    )
    with pytest.raises(FileNotFoundError):  # a newer attempt has removed the folder
        board.write(report)
    board.prepare()
    board.write(report)
    (board.folder / "rank-00002.json").write_text('{"rank": 2')
    assert board.read(range(4)) == {1: report}
    other = Board(tmp_path, view_label(1))
    other.prepare()
    assert board.read(range(4)) == {1: report}
    Board(tmp_path, attempt_label(4)).prepare()
    assert board.read(range(4)) == {} and other.folder.exists()


def test_a_verdict_is_recorded_once_whoever_claims_it(tmp_path: Path) -> None:
    first, second = Verdicts(tmp_path), Verdicts(tmp_path)
    assert first.claim("a", CULPRIT)
    assert not second.claim("a", replace(CULPRIT, rank=5))
    assert second.all() == [CULPRIT]
    second.renew("a", replace(CULPRIT, time=2000.0))
    assert [one.time for one in first.all()] == [2000.0]
    assert not list(first.folder.glob(".*"))


def refused(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_verdict_that_could_not_be_written_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = Judge(tmp_path, Team(label=attempt_label(2), rank=0, world=4, attempt=2), 1.0)
    name = f"{HUNG}-step-41-rank-3"
    with monkeypatch.context() as full:
        full.setattr(os, "link", refused)
        with pytest.raises(OSError, match="No space left"):
            judge.announce(name, CULPRIT)
    for _ in range(2):
        judge.announce(name, CULPRIT)
    assert judge.hung_ranks(41) == [3]
    assert capsys.readouterr().err.count(CULPRIT_LINE) == 1


def test_a_full_memory_file_system_does_not_end_the_watchdog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Watchdog, "_open_stack_file", refused)
    watchdog = Watchdog(
        tmp_path,
        Recorder(),
        lambda world: Patience(
            hang_after_s=1.0,
            window_s=5,
            start_limit_s=1200,
            collective_timeout_s=120,
            world=world,
        ),
        rank=5,
        ring=tmp_path / "rank-00005-1",
        end_hung_rank=False,
    )
    done = threading.Event()
    watchdog.watch(None)
    watchdog.later(done.set)
    assert done.wait(60)
    watchdog.close()
    assert "flight recorder of rank 5: OSError" in capsys.readouterr().err


def test_a_line_in_the_log_names_the_culprit() -> None:
    assert parse_line(f"2026-01-01 {CULPRIT.line()}") == CULPRIT


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '"hung"',
        json.dumps({"symptom": "hung"}),
        json.dumps({**vars(CULPRIT), "symptom": "bored"}),
        json.dumps({**vars(CULPRIT), "rank": "many"}),
        json.dumps({**vars(CULPRIT), "evidence": "none"}),
    ],
)
def test_lines_that_say_something_else_name_no_culprit(content: str) -> None:
    assert parse_line(CULPRIT_LINE + content) is None


def test_a_line_cannot_fill_the_screen() -> None:
    long = replace(CULPRIT, what="x" * 10_000, evidence=("y" * 10_000,) * 1000)
    found = parse_line(long.line())
    assert found is not None
    assert len(found.what) == 300 and len(found.evidence) == 8


def test_a_rank_is_silent_once_its_reports_have_not_changed_for_long_enough() -> None:
    beats = Beats(3.0)
    beats.see(1, 7, 100.0)
    assert not beats.is_silent(1, 102.0) and not beats.is_fresh(1)
    beats.see(1, 8, 102.5)
    assert beats.is_fresh(1) and not beats.is_silent(1, 105.0)
    beats.see(1, 8, 105.0)
    assert beats.is_silent(1, 106.0)
    assert not beats.is_silent(2, 106.0)


def test_the_frame_of_a_blocked_interpreter_is_read_from_what_faulthandler_wrote(
    tmp_path: Path,
) -> None:
    file = tmp_path / "stack"
    file.write_text(
        "0x00007f00000000aa\nTimeout (0:00:10)!\n"
        'Thread 0x00007f00000000bb (most recent call first):\n  File "/a/b/c/other.py", line 1 in g\n'
        'Thread 0x00007f00000000aa (most recent call first):\n  File "/a/b/c/d.py", line 12 in f\n'
        '  File "/a/b/c/e.py", line 2 in main\n'
    )
    assert dumped_frame(file) == "b/c/d.py:12 f"
    file.write_text("0x00007f00000000aa\n")
    assert dumped_frame(file) == ""


def test_steps_are_taken_once() -> None:
    recorder = Recorder()
    recorder.add_step(StepTimes(1, 0.3, 0.1, 0.15))
    (step,) = recorder.take_steps()
    assert step.waited == pytest.approx(0.05)
    assert recorder.take_steps() == []
