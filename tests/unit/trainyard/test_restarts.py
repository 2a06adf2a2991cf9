"""Restarts by exit code of all job kinds that have them, with real processes as pods."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60

PROGRAM = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
codes = sys.argv[2:]
starts = folder / "starts"
number = int(starts.read_text()) if starts.exists() else 0
starts.write_text(str(number + 1))
word = codes[min(number, len(codes) - 1)]
if word.endswith("+"):  # a step first
    line = '{"step": 1, "attempt": %d}' % (number + 1)
    (folder / "metrics.jsonl").write_text(line + chr(10))
    word = word[:-1]
(folder / f"again-{number}").write_text(os.environ.get("TRAINYARD_RESTARTS_IN_POD", ""))
if word == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    (folder / "waits").touch()
    while True:
        time.sleep(0.05)
if word == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int(word))
"""


def pod(folder: Path, kind: str, *codes: object, leader: bool = True) -> subprocess.Popen[str]:
    """Start a pod whose ranks end with these codes, one a start; two failures are allowed."""
    env = {k: v for k, v in os.environ.items() if k != "JOB_COMPLETION_INDEX"}
    index = {"JOB_COMPLETION_INDEX": "0" if leader else "1"} if kind == "indexed-job" else {}
    leads = ["--leader"] if leader and kind == "pytorchjob" else []
    command = [sys.executable, "-c", PROGRAM, str(folder), *map(str, codes)]
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "trainyard.restarts", f"--job-kind={kind}", "--max-restarts=2"),
            *(f"--state={folder / 'restarts.json'}", *leads, "--", *command),
        ],
        env=env | index | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )


def code_of(process: subprocess.Popen[str]) -> int:
    """The pod's exit code."""
    process.communicate(timeout=DEADLINE_S)
    return process.returncode


def starts(folder: Path) -> int:
    return int((folder / "starts").read_text())


def failures(folder: Path) -> int:
    state = folder / "restarts.json"
    return int(json.loads(state.read_text()).get("failures", 0)) if state.exists() else 0


@pytest.mark.parametrize(
    ("code", "ended", "counted"),
    [(0, 0, 0), (78, 78, 0), (75, 203, 0), (1, 129, 1), (137, 137, 1), ("kill", 137, 1)],
)
def test_training_operator_replaces_pods_from_128_on(
    tmp_path: Path, code: object, ended: int, counted: int
) -> None:
    assert code_of(pod(tmp_path, "pytorchjob", code)) == ended
    assert failures(tmp_path) == counted


def test_training_operator_ends_the_job_after_the_last_restart(tmp_path: Path) -> None:
    codes = [code_of(pod(tmp_path, "pytorchjob", "kill")) for _ in range(3)]
    assert codes == [137, 137, 1]
    assert starts(tmp_path) == 3


def test_pods_that_do_not_lead_count_nothing(tmp_path: Path) -> None:
    codes = [code_of(pod(tmp_path, "pytorchjob", 1, leader=False)) for _ in range(4)]
    assert codes == [129] * 4
    assert failures(tmp_path) == 0


@pytest.mark.parametrize("kind", ["indexed-job", "mpijob"])
@pytest.mark.parametrize(
    ("codes", "ended", "times"),
    [
        ((0,), 0, 1),
        ((78,), 78, 1),
        ((75, 75, 75, 75, 0), 0, 5),
        ((1, 75, 3, 0), 0, 4),
        ((1, 75, 3, 4, 0), 4, 4),
    ],
)
def test_ranks_start_again_in_their_pod(
    tmp_path: Path, kind: str, codes: tuple[int, ...], ended: int, times: int
) -> None:
    assert code_of(pod(tmp_path, kind, *codes)) == ended
    assert starts(tmp_path) == times


@pytest.mark.parametrize("kind", ["job", "jobset"])
@pytest.mark.parametrize(
    ("codes", "ended", "times", "counted"),
    [
        ((0,), 0, 1, 0),
        ((78,), 78, 1, 0),
        (("75+",), 75, 1, 0),  # the object requeues it
        (("1+", 0), 0, 2, 1),
        (("kill+", "3+", 0), 0, 3, 2),
        (("1+", "3+", "4+"), 4, 3, 3),  # two restarts are allowed
        (("1+", "3+", "kill+"), 1, 3, 3),  # 137 would get the pod replaced
        ((1,), 71, 1, 1),  # no step: a new pod
        (("1+", 3), 71, 2, 2),
        (("1+", "3+", 4), 4, 3, 3),
        (("1+", 78), 78, 2, 1),
    ],
)
def test_a_gang_of_one_pod_starts_again_in_it_once_it_has_made_a_step(
    tmp_path: Path, kind: str, codes: tuple[object, ...], ended: int, times: int, counted: int
) -> None:
    assert code_of(pod(tmp_path, kind, *codes)) == ended
    assert (starts(tmp_path), failures(tmp_path)) == (times, counted)
    again = [(tmp_path / f"again-{number}").read_text() for number in range(times)]
    assert again == [str(number) for number in range(times)]


def test_failures_are_counted_over_all_pods_of_a_run(tmp_path: Path) -> None:
    assert code_of(pod(tmp_path, "job", "1+", 2)) == 71
    assert code_of(pod(tmp_path, "job", 5)) == 5, "the last one is not replaced"
    assert failures(tmp_path) == 3


@pytest.mark.parametrize("kind", ["indexed-job", "mpijob", "job", "jobset"])
def test_a_pod_that_is_told_to_stop_passes_it_on_and_ends_with_75(
    tmp_path: Path, kind: str
) -> None:
    process = pod(tmp_path, kind, "wait")
    limit = time.monotonic() + DEADLINE_S
    while not (tmp_path / "waits").exists():
        assert time.monotonic() < limit
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert code_of(process) == 75
    assert (starts(tmp_path), failures(tmp_path)) == (1, 0)


@pytest.mark.parametrize("kind", ["indexed-job", "mpijob"])
def test_a_replaced_pod_does_not_start_a_run_that_gave_up(tmp_path: Path, kind: str) -> None:
    (tmp_path / "restarts.json").write_text('{"failures": 3, "ended": 9}')
    process = pod(tmp_path, kind, 0)
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 9
    assert "remove" in said and "restarts.json" in said
    assert not (tmp_path / "starts").exists()


def test_the_other_nodes_end_once_the_first_is_done(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert code_of(pod(tmp_path, "indexed-job", 0)) == 0
    (other / "restarts.json").symlink_to(tmp_path / "restarts.json")
    assert code_of(pod(other, "indexed-job", 5, leader=False)) == 0, "it had not begun"
