"""The library as programs use it: real processes without torch, one or several ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from trainyard.store import manifest

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 120

Process = subprocess.Popen[str]


def start(
    program: str, folder: Path, rank: int = 0, world: int = 1, gang: str = "1", in_run: bool = True
) -> Process:
    """Start a rank of a program; `gang`: which start of all ranks it belongs to."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINYARD_")}
    env |= {"PYTHONPATH": str(ROOT), "RANK": str(rank), "WORLD_SIZE": str(world)}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": gang}
    if in_run:
        env |= {"TRAINYARD_RUN_ID": "sft-v1-0a1b2c3d", "TRAINYARD_RUN_DIR": str(folder)}
        env |= {"TRAINYARD_CHECKPOINTS": str(folder / "checkpoints"), "TRAINYARD_TEAM": "nlp"}
    return subprocess.Popen(
        [sys.executable, "-c", "import os, sys, trainyard\n" + program],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*ranks: Process, code: int = 0) -> list[str]:
    """What each rank printed; fails unless all end with `code`."""
    outputs = [rank.communicate(timeout=DEADLINE_S) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [code] * len(ranks), outputs
    return [out + err for out, err in outputs]


def run(program: str, folder: Path, world: int = 1, gang: str = "1", code: int = 0) -> list[str]:
    """Run a program on all ranks; return what each printed."""
    ranks = [start(program, folder, rank, world, gang) for rank in range(world)]
    return finish(*ranks, code=code)


def events(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


SAVE = """
rank = trainyard.run.rank
for step in map(int, "{steps}".split()):
    with trainyard.checkpoints.save(step, metadata={{"epoch": step}}) as folder:
        (folder / "ranks").mkdir(exist_ok=True)
        (folder / "ranks" / f"{{rank}}.bin").write_bytes(bytes([step, rank]) * 1000)
"""
LATEST = """
found = trainyard.checkpoints.latest()
print(found and (found.step, found.metadata, (found.path / "ranks" / "1.bin").read_bytes()[:2]))
"""


def saved(*steps: int) -> str:
    return SAVE.format(steps=" ".join(map(str, steps)))


@pytest.mark.parametrize("world", [1, 3])
def test_what_all_ranks_wrote_is_published_and_found_by_the_next_start(
    world: int, tmp_path: Path
) -> None:
    run(saved(7, 8), tmp_path, world)
    found = run(LATEST.replace("1.bin", "0.bin"), tmp_path, world, gang="2")
    assert found == ["(8, {'epoch': 8}, b'\\x08\\x00')\n"] * world
    manifest = json.loads((tmp_path / "checkpoints/step-00000008/manifest.json").read_text())
    assert sorted(manifest["files"]) == [f"ranks/{rank}.bin" for rank in range(world)]
    assert manifest["world_size"] == world and manifest["attempt"] == 1


VERIFIED = """
from trainyard.store.posix import PosixStore
verify = PosixStore.verify
def noted(store, step, names=None, *rest):
    print(sorted(names))
    return verify(store, step, names, *rest)
PosixStore.verify = noted
"""


def test_each_rank_verifies_a_part_of_the_files(tmp_path: Path) -> None:
    run(saved(7), tmp_path, 3)
    found = run(VERIFIED + LATEST, tmp_path, 2, gang="2")
    assert sorted(line for one in found for line in one.splitlines() if "ranks/" in line) == [
        "['ranks/0.bin', 'ranks/2.bin']",
        "['ranks/1.bin']",
    ]


def test_a_wait_goes_on_while_ranks_make_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainyard import shared_files

    file, alive, looks = tmp_path / "message", tmp_path / "alive", [0]
    clock = iter(range(0, 10**6, 50))
    monkeypatch.setattr("trainyard.shared_files.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("trainyard.shared_files.time.sleep", lambda _: None)

    def look(_: Path) -> None:
        looks[0] += 1
        alive.write_text(str(looks[0]))
        if looks[0] == 20:
            shared_files.write(file, "here")

    monkeypatch.setattr(shared_files, "refresh", look)
    assert shared_files.wait(file, 120, "a message", alive) == "here"


def test_a_corrupt_checkpoint_is_skipped_in_one_line_and_set_aside(tmp_path: Path) -> None:
    run(saved(7, 8), tmp_path, 2)
    file = tmp_path / "checkpoints/step-00000008/ranks/1.bin"
    file.write_bytes(file.read_bytes()[:-1])
    leader, other = run(LATEST, tmp_path, 2, gang="2")
    assert "(7, {'epoch': 7}" in leader and "(7, {'epoch': 7}" in other
    assert "checkpoint step-00000008 skipped: ranks/1.bin: got 1999 bytes" in leader
    assert not (tmp_path / "checkpoints/step-00000008").exists()
    [skipped] = [e for e in events(tmp_path) if e["event"] == "checkpoint_corrupt"]
    assert skipped["step"] == 8 and str(skipped["error"]).startswith("ranks/1.bin")


def test_without_any_intact_checkpoint_all_ranks_fail_instead_of_starting_again(
    tmp_path: Path,
) -> None:
    run(saved(7), tmp_path, 2)
    (tmp_path / "checkpoints/step-00000007/ranks/0.bin").unlink()
    for output in run(LATEST, tmp_path, 2, gang="2", code=1):
        assert "none of the 1 checkpoints can be loaded" in output


@pytest.mark.skipif(manifest.preferred() != manifest.BLAKE3, reason="without blake3")
def test_a_checkpoint_that_cannot_be_verified_here_is_not_set_aside(tmp_path: Path) -> None:
    run(saved(6, 7), tmp_path, 2)
    without = "from trainyard.store import manifest\nmanifest._blake3 = lambda: None\n"
    for output in run(without + LATEST, tmp_path, 2, gang="2", code=1):
        assert "step-00000007: hash blake3: needs the Python package blake3" in output
    assert (tmp_path / "checkpoints/step-00000007/manifest.json").exists()
    assert "(7, {'epoch': 7}" in run(LATEST, tmp_path, 2, gang="3")[0]


def test_a_rank_that_fails_while_it_writes_fails_the_save_on_all_ranks(tmp_path: Path) -> None:
    fails = saved(8).replace("(folder /", "1 / (1 - rank); (folder /", 1)
    run(saved(7), tmp_path, 2)
    leader, other = run(fails, tmp_path, 2, gang="2", code=1)
    assert "SaveFailed: step 8 not saved: rank 1: division by zero" in leader
    assert "ZeroDivisionError" in other
    left = [p.name for p in (tmp_path / "checkpoints").glob("*step-*")]
    assert [name for name in left if not name.endswith("-ranks")] == ["step-00000007"]


# Rank 0 has told the outcome of its first save, and does no more before rank 1 has written its part of the next.
LATE_LEADER = """
import pathlib, time
from trainyard import shared_files
write = shared_files.write
def write_late(file, values):
    write(file, values)
    if isinstance(values, dict) and "outcome" in values and "-save-1-" in file.parent.name:
        deadline = time.monotonic() + 60
        while not list(file.parent.parent.glob(".writing-*-save-2-ranks/save-0-rank-1")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
if trainyard.run.rank == 0:
    shared_files.write = write_late
"""


def test_a_rank_may_be_in_the_next_save_before_the_leader_has_left_the_last(tmp_path: Path) -> None:
    run(LATE_LEADER + saved(6, 7), tmp_path, 2)
    left = [path.name for path in (tmp_path / "checkpoints").glob(".writing-*")]
    assert left == [".writing-step-00000007-attempt-00000001-save-2-ranks"]
    assert "(7, {'epoch': 7}" in run(LATEST, tmp_path, 2, gang="2")[0]


def test_a_save_that_is_tried_again_at_once_has_the_files_of_all_ranks(tmp_path: Path) -> None:
    again = """
for trial in (1, 2):
    try:
        with trainyard.checkpoints.save(8) as folder:
            name = f"{trainyard.run.rank}.bin"
            (folder / name).write_bytes(b"x" * 1000)
            if trial == 1 and trainyard.run.rank == 1:
                raise OSError("no space")
    except OSError as error:
        print(error)
"""
    leader, other = run(LATE_LEADER + again, tmp_path, 2)
    assert "step 8 not saved: rank 1: no space" in leader and "no space" in other
    manifest = json.loads((tmp_path / "checkpoints/step-00000008/manifest.json").read_text())
    assert sorted(manifest["files"]) == ["0.bin", "1.bin"]


def test_a_replaced_start_cannot_publish(tmp_path: Path) -> None:
    waits = "trainyard.checkpoints.latest(); print('ready', flush=True); sys.stdin.read(1)\n"
    old = subprocess.Popen(
        [sys.executable, "-c", "import sys, trainyard\n" + waits + saved(9)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRAINYARD_RUN_DIR": str(tmp_path)}
        | {"TRAINYARD_CHECKPOINTS": str(tmp_path / "checkpoints"), "TRAINYARD_RUN_ID": "x"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert old.stdout and old.stdout.readline() == "ready\n"
    run(saved(5), tmp_path, gang="2")
    _, errors = old.communicate("x", timeout=DEADLINE_S)
    assert old.returncode == 1 and "was replaced by attempt 2" in errors
    assert [p.name for p in (tmp_path / "checkpoints").glob("step-*")] == ["step-00000005"]


def test_outside_a_run_nothing_but_checkpoints_is_written(tmp_path: Path) -> None:
    program = "trainyard.log(step=1, loss=1.0); print(trainyard.notice.requested())" + saved(3)
    [output] = finish(start(program, tmp_path, in_run=False))
    assert output == "False\n"
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoints"]
    [found] = finish(start(LATEST.replace("1.bin", "0.bin"), tmp_path, in_run=False))
    assert found.startswith("(3, ")


def test_steps_are_reported_in_the_trainers_format_and_repeated_ones_replaced(
    tmp_path: Path,
) -> None:
    report = "for s in range({}, {}): trainyard.log(step=s, loss=1.0 / s, tokens=8)\n"
    run(report.format(1, 6), tmp_path)
    run(report.format(4, 8), tmp_path, gang="2")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["attempt"]) for line in lines] == [
        *((step, 1) for step in (1, 2, 3)),
        *((step, 2) for step in (4, 5, 6, 7)),
    ]
    assert lines[0]["tokens"] == 8 and lines[0]["lr"] is None and lines[0]["tokens_per_s"] > 0
    assert [e["attempt"] for e in events(tmp_path) if e["event"] == "started"] == [1, 2]


VALUES = """
import numpy, torch
class Placement:
    def is_replicate(self): return False
class Sharded:
    placements = [Placement()]
    def full_tensor(self): raise AssertionError("a call of all ranks")
    def item(self): raise AssertionError("a call of all ranks")
some = torch.ones(2)
for step in 1, 2:
    trainyard.log(step=step, loss=0.5, lr=[1e-4], grad_norm=Sharded(), mfu=some, tokens="many")
trainyard.log(step=numpy.int64(3), loss=torch.tensor(0.5, requires_grad=True), tokens=torch.tensor(64))
trainyard.log(step=4.0, loss=numpy.float32(0.5), lr=numpy.float64(0.25), grad_norm=torch.tensor([2.0]))
trainyard.log(step=5, loss=None)
trainyard.log(step=6, loss=some)
trainyard.log(step="last", loss=0.5)
with trainyard.checkpoints.save(numpy.int64(4), evaluation_loss=torch.tensor(0.5)):
    pass
"""


def test_every_numeric_value_is_reported_and_any_other_is_one_line(tmp_path: Path) -> None:
    [output] = run(VALUES, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(one["step"], one["loss"], one["tokens"]) for one in lines] == [
        *((1, 0.5, 0), (2, 0.5, 0)),
        *((3, 0.5, 64), (4, 0.5, 0)),
    ]
    assert [one["lr"] for one in lines] == [None, None, None, 0.25]
    assert [one["grad_norm"] for one in lines] == [None, None, None, 2.0]
    names = ["tokens", "lr", "grad_norm", "mfu", "loss", "step"]
    said = [line.split(": ")[:2] for line in output.splitlines()]
    assert said == [["trainyard.log", name] for name in names], output
    assert not any(isinstance(value, list) for one in lines for value in one.values())
    assert (tmp_path / "checkpoints/step-00000004").is_dir()


NOTICE = """
import threading, time
told = threading.Event()
trainyard.notice.on_notice(lambda: (print("told", flush=True), told.set()))
print("ready", flush=True)
limit = time.monotonic() + {limit}
while not trainyard.notice.requested() and time.monotonic() < limit:
    time.sleep(0.01)
assert 0 < trainyard.notice.seconds_left() <= 80
assert told.wait({limit})
trainyard.exit_preempted()
"""


@pytest.mark.parametrize("how", ["signal", "file"])
def test_a_program_that_asks_for_notices_saves_and_ends_with_75(how: str, tmp_path: Path) -> None:
    process = start(NOTICE.format(limit=DEADLINE_S), tmp_path)
    assert process.stdout and process.stdout.readline() == "ready\n"
    if how == "signal":
        process.send_signal(signal.SIGTERM)
    else:
        (tmp_path / "notice").touch()
    [output] = finish(process, code=75)
    assert output == "told\n"
    assert not (tmp_path / "notice").exists()


def test_a_missing_rank_ends_the_wait_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainyard import shared_files

    begun = time.monotonic()
    with pytest.raises(shared_files.RankMissing, match="rank 3's files: nothing came within 0 s"):
        shared_files.wait(tmp_path / "nothing", 0.05, "rank 3's files")
    assert time.monotonic() - begun < DEADLINE_S


def facts(**values: str) -> Mapping[str, str]:
    return values


def test_placeholders_are_expanded_and_other_braces_stay() -> None:
    from trainyard.placeholders import expand, unknown_placeholders

    known = facts(checkpoints="/c", run_id="r")
    assert expand("{checkpoints}/x/{run_id}", known) == "/c/x/r"
    assert expand('{"a": {"b": 1}} {HOME} {}', known) == '{"a": {"b": 1}} {HOME} {}'
    assert expand("{{run_id}}", known) == "{run_id}"
    assert unknown_placeholders(["{run_id} {chekpoints}", "{{nodez}}"]) == ["chekpoints"]


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ({"launcher": "slurm", "command": ["a"]}, "launcher: 'slurm' is not valid"),
        ({"launcher": "python", "command": []}, "command: must be a list of words"),
        ({"launcher": "python", "command": ["no.py"]}, "command: no.py: no such file in"),
        ({"launcher": "python", "command": ["{chekpoints}"]}, "{chekpoints} is not a placeholder"),
    ],
)
def test_a_program_that_cannot_start_ends_with_78_and_one_line(
    program: dict[str, object], line: str, tmp_path: Path
) -> None:
    file = tmp_path / "program.json"
    file.write_text(json.dumps(program))
    done = subprocess.run(
        [sys.executable, "-m", "trainyard.launch", "--program", str(file)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 78
    assert line in done.stderr and len(done.stderr.splitlines()) == 1
