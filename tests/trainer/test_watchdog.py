"""A rank of any program that hangs, is stopped or is slow is named, without a change to the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainer.outcome_programs import ROOT
from tests.trainer.ranks import DEADLINE_S, RunFiles, until
from tests.trainer.runs import Trainer
from trainyard.contract import CULPRIT_LINE
from trainyard.culprits import HUNG, SLOW_RANK, Culprit, Verdicts, parse_line

pytestmark = pytest.mark.long(200)

PROGRAM = str(Path(__file__).with_name("watched_program.py"))
SHORT = "90,4"
"""Limits of a start and of a step in seconds: a busy machine starts slowly."""
SHORT_START = "30,4"
USUAL = "1200,90"
VERDICT_S = 120.0

Launch = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts the program on two ranks; what they print goes to `log` in tmp_path."""
    started: list[subprocess.Popen[bytes]] = []

    def start(limits: str, *program: str, ranks: int = 2) -> subprocess.Popen[bytes]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINYARD_")}
        env |= {"PYTHONPATH": str(ROOT), "TRAINYARD_WATCH_LIMITS": limits}
        env |= {"TRAINYARD_RUN_DIR": str(tmp_path), "TRAINYARD_NODE": "node-7"}
        env |= {"TRAINYARD_CHECKPOINTS": str(tmp_path / "checkpoints"), "TRAINYARD_RUN_ID": "a-v1"}
        words = [sys.executable, "-m", "trainyard.launch", f"--ranks={ranks}", "--", *program]
        with (tmp_path / "log").open("ab") as log:
            started.append(subprocess.Popen(words, env=env, cwd=tmp_path, stdout=log, stderr=log))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


def verdict(folder: Path) -> Culprit:
    """Wait until a rank is named."""

    def found() -> list[Culprit]:
        log = (folder / "log").read_text()
        return [one for line in log.splitlines() if (one := parse_line(line))]

    first: Culprit = until(found, "a verdict", VERDICT_S)[0]
    assert Verdicts(folder).all()[0] == first
    return first


@pytest.mark.parametrize(
    ("fault", "frame", "what"),
    [
        ("loader", "stand_still", "does not leave a step for "),
        ("update", "stand_still", "does not leave a step for "),
        ("save", "stand_still", "does not leave phase save for "),
        ("start", "stand_still", "does not leave phase start for "),
        ("lock", "hold_the_lock", "does not answer for "),
        ("stopped", "", "does not answer for "),
    ],
)
def test_the_rank_that_hangs_is_named_and_all_stacks_are_kept(
    fault: str, frame: str, what: str, launch: Launch, tmp_path: Path
) -> None:
    launch(SHORT_START if fault in ("save", "start") else SHORT, PROGRAM, fault)
    named = verdict(tmp_path)
    assert (named.symptom, named.rank, named.node) == (HUNG, 1, "node-7"), named
    assert named.what.startswith(what)
    assert named.frame.endswith(frame)
    [folder] = (tmp_path / "flight").glob("start-*")
    stacks = folder / "rank-00000.stacks"
    until(stacks.read_text, "the stacks of the other rank")
    until((folder / "rank-00000.collectives.json").exists, "torch's record of collectives")
    assert "watched_program.py" in stacks.read_text()
    if fault == "save":
        events = (tmp_path / "events.jsonl").read_text().splitlines()
        assert "culprit" in [json.loads(line)["event"] for line in events]


HANGS = """
import os, runpy, time
from trainer.data.prefetch import PrefetchLoader

take, calls = PrefetchLoader.take, []

def hang(self, first, count):
    calls.append(first)
    if os.environ.get("RANK", "1") == "1" and len(calls) > 12:
        time.sleep(3600)
    return take(self, first, count)

PrefetchLoader.take = hang
runpy.run_module("trainer", run_name="__main__")
"""
"""The trainer, whose second rank gets no more samples after some steps."""


def arguments(trainer: Trainer, run: Path, *settings: str) -> list[str]:
    """Of a trainer that does not end by itself."""
    given = [f"data.path={trainer.dataset}", "steps=1000000", "schedule.kind=constant", *settings]
    words = ["--config", str(trainer.config), "--run-dir", str(run)]
    return [*words, *(word for setting in given for word in ("--set", setting))]


def test_a_group_of_an_elastic_run_that_hangs_is_named_and_ended_and_the_other_goes_on(
    trainer: Trainer, launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    words, files = arguments(trainer, tmp_path, "groups.workers=8"), RunFiles(tmp_path)
    other = launch(SHORT, "-m", "trainer", *words, ranks=1)
    files.until_step(3)
    hung = launch(SHORT, "-m", "hangs", *words, ranks=1)
    named = verdict(tmp_path)
    assert (named.symptom, named.what[:16]) == (HUNG, "does not leave t"), named
    assert hung.wait(DEADLINE_S) == 137
    files.until_step(files.last_step() + 20)
    assert other.poll() is None
    assert len(Verdicts(tmp_path).all()) == 1


def test_the_built_in_trainer_marks_its_phases_and_steps(
    trainer: Trainer, launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    launch(SHORT, "-m", "hangs", *arguments(trainer, tmp_path))
    named = verdict(tmp_path)
    assert (named.symptom, named.rank, named.attempt) == (HUNG, 1, 1), named
    assert named.what.startswith("does not leave the loader for ")
    files = RunFiles(tmp_path)
    [event] = until(lambda: files.events("culprit"), "the event")
    assert (event["step"], event["rank"]) == (named.step, 1)
    assert named.step == files.last_step() > 0


def test_a_rank_that_is_stopped_for_good_is_ended(launch: Launch, tmp_path: Path) -> None:
    node = launch(SHORT, PROGRAM, "stopped")
    assert node.wait(DEADLINE_S) == 137
    assert "watchdog: rank 1 has been stopped for" in (tmp_path / "log").read_text()


def test_the_slow_rank_is_named_by_its_own_work(launch: Launch, tmp_path: Path) -> None:
    launch(USUAL, PROGRAM, "slow")
    named = verdict(tmp_path)
    assert (named.symptom, named.rank, named.node) == (SLOW_RANK, 1, "node-7"), named
    assert "times as long as the others" in named.what


def test_long_work_between_two_steps_is_no_hang(launch: Launch, tmp_path: Path) -> None:
    assert launch(SHORT, PROGRAM, "long").wait(DEADLINE_S) == 0, (tmp_path / "log").read_text()
    log = (tmp_path / "log").read_text()
    assert log.count("worked long") == 2
    assert CULPRIT_LINE not in log
