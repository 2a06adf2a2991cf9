"""The fork server: starts ranks, reports their exit codes and leaves no process behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.ranks import DEADLINE_S, until
from training.trainer.processes import agent, forkserver
from training.trainer.processes.agent import ForkServer
from training.trainer.processes.forkserver import RankSpec
from trainyard.contract import EXIT_DIR_ENV
from trainyard.exit_codes import ExitDir

pytestmark = pytest.mark.long(10)

PROGRAM = """
import os, signal, subprocess, sys, time
if sys.argv[1] == "listen":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(11))
print(sys.argv[1:], os.environ.get("RANK"), "HOME" in os.environ, flush=True)
if sys.argv[1] == "start-another":
    subprocess.run(["sleep", "3600"])
elif sys.argv[1] not in ("listen", "pause"):
    sys.exit(int(sys.argv[1]))
while True:  # not signal.pause(), which misses a signal that comes just before it
    time.sleep(0.05)
"""


@pytest.fixture
def starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ForkServer]]:
    """Ready to start warm processes of a small program; ends those in the list."""
    (tmp_path / "small_program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(forkserver, "PROGRAM", "small_program")
    monkeypatch.setattr(forkserver, "PRELOADED", ())
    started: list[ForkServer] = []
    yield started
    for process in started:
        process.channel.close()
        os.waitpid(process.pid, 0)


def started(starting: list[ForkServer]) -> ForkServer:
    starting.append(ForkServer.start())
    assert starting[-1].wait_until_ready()
    return starting[-1]


def order(tmp_path: Path, *arguments: str, **environment: str) -> RankSpec:
    out = str(tmp_path / "out")
    return RankSpec(arguments=arguments, environment=environment, stdout=out, stderr=out)


def codes(folder: Path) -> list[int]:
    return [result.code for result in ExitDir(folder).results()]


def exists(pid: int) -> bool:
    """Whether it runs; one that waits for its parent's notice does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("code", [0, 7, 75])
def test_a_fork_runs_the_requested_program_and_reports_its_exit_code(
    code: int, starting: list[ForkServer], tmp_path: Path
) -> None:
    process = started(starting)
    pid = process.fork(order(tmp_path, str(code), "b", RANK="3"))
    assert process.code(pid, DEADLINE_S) == code
    assert (tmp_path / "out").read_text() == f"['{code}', 'b'] 3 False\n"


def test_exit_codes_are_reported_per_rank(starting: list[ForkServer], tmp_path: Path) -> None:
    process = started(starting)
    pids = [process.fork(order(tmp_path, argument)) for argument in ("3", "pause", "0")]
    assert process.code(pids[2], DEADLINE_S) == 0
    assert process.code(pids[0], DEADLINE_S) == 3
    assert process.code(pids[1], 0) is None
    process.kill(pids[1], signal.SIGKILL)
    assert process.code(pids[1], DEADLINE_S) == -signal.SIGKILL


def test_sigterm_before_the_handler_is_installed_exits_as_preempted(
    starting: list[ForkServer], tmp_path: Path
) -> None:
    process = started(starting)
    pid = process.fork(order(tmp_path, "pause", RANK="1", **{EXIT_DIR_ENV: str(tmp_path)}))
    process.kill(pid, signal.SIGTERM)
    assert process.code(pid, DEADLINE_S) == 75
    assert codes(tmp_path) == [75]


def test_a_killed_rank_leaves_a_result_for_the_launcher(
    starting: list[ForkServer], tmp_path: Path
) -> None:
    process = started(starting)
    pid = process.fork(order(tmp_path, "pause", RANK="1", **{EXIT_DIR_ENV: str(tmp_path)}))
    process.kill(pid, signal.SIGKILL)
    assert process.code(pid, DEADLINE_S) == -signal.SIGKILL
    assert [(r.rank, r.code) for r in ExitDir(tmp_path).results()] == [(1, -signal.SIGKILL)]


def test_a_program_that_listens_gets_its_signal(starting: list[ForkServer], tmp_path: Path) -> None:
    process = started(starting)
    pid = process.fork(order(tmp_path, "listen"))
    until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text(), "it to listen")
    process.kill(pid, signal.SIGTERM)
    assert process.code(pid, DEADLINE_S) == 11


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def test_a_killed_rank_takes_what_it_has_started_with_it(
    starting: list[ForkServer], tmp_path: Path
) -> None:
    process = started(starting)
    pid = process.fork(order(tmp_path, "start-another", PATH=os.environ["PATH"]))
    (grandchild,) = until(lambda: children(pid), "its own process")
    process.kill(pid, signal.SIGKILL)
    assert process.code(pid, DEADLINE_S) == -signal.SIGKILL
    until(lambda: not exists(grandchild), "that to end")


def test_when_the_warm_process_dies_its_ranks_end_with_it(
    starting: list[ForkServer], tmp_path: Path
) -> None:
    process = started(starting)
    pid = process.fork(order(tmp_path, "pause"))
    os.kill(process.pid, signal.SIGKILL)
    assert process.code(pid, DEADLINE_S) == -signal.SIGKILL
    until(lambda: not exists(pid), "the rank to end")
    with pytest.raises(OSError, match="cannot fork"):
        process.fork(order(tmp_path, "0"))


def test_when_the_launcher_dies_all_ranks_are_stopped(
    starting: list[ForkServer], tmp_path: Path
) -> None:
    process = started(starting)
    pid = process.fork(order(tmp_path, "pause", RANK="0", **{EXIT_DIR_ENV: str(tmp_path)}))
    process.channel.close()
    until(lambda: not exists(pid) and not exists(process.pid), "both to end")
    assert codes(tmp_path) == [75]


def test_a_failed_preload_is_logged_and_ranks_start_cold(
    starting: list[ForkServer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(forkserver, "PRELOADED", ("no_such_module",))
    starting.append(ForkServer.start())
    assert not starting[-1].wait_until_ready()
    assert "without the fork server: ModuleNotFoundError" in capsys.readouterr().err


def test_a_process_with_a_second_thread_does_not_fork(
    starting: list[ForkServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setattr(forkserver, "PRELOADED", ("starts_a_thread",))
    starting.append(ForkServer.start())
    assert not starting[-1].wait_until_ready()
    assert "2 threads after loading" in capsys.readouterr().err


def test_only_the_trainer_is_forked() -> None:
    plain = {"entrypoint": sys.executable, "numa_options": None}
    trainer = ("-u", "-m", "training.trainer", "--config", "x")
    assert agent.is_trainer_command({**plain, "args": {0: trainer}})
    assert not agent.is_trainer_command({**plain, "args": {0: ("-u", "script.py")}})
    assert not agent.is_trainer_command({**plain, "args": {0: trainer}, "entrypoint": "python2"})
    assert not agent.is_trainer_command({**plain, "args": {0: trainer}, "numa_options": object()})
