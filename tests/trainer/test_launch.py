"""The launcher, as pods run it: real torchrun agents, real commands, honest exit codes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.trainer.ranks import DEADLINE_S, RunFiles, until
from tests.trainer.runs import STEPS, Trainer, assert_same


def launch(trainer: Trainer, run: str, *torchrun: str, log: Path, config: str = "") -> subprocess.Popen[bytes]:  # fmt: skip
    """One node's launcher."""
    arguments = ["--config", config or str(trainer.config), "--run-dir", str(trainer.root / run)]
    arguments += ["--set", f"data.path={trainer.dataset}"]
    command = [sys.executable, "-m", "training.trainer.launch", *torchrun]
    with log.open("ab") as stream:
        return subprocess.Popen(
            [*command, "-m", "training.trainer", *arguments], stdout=stream, stderr=stream
        )


def two_nodes(trainer: Trainer, run: str, port: int) -> list[subprocess.Popen[bytes]]:
    rendezvous = f"--rdzv-endpoint=127.0.0.1:{port}"
    shape = ("--nnodes=2", "--nproc-per-node=1", "--max-restarts=0", f"--rdzv-id={run}")
    return [
        launch(
            trainer,
            run,
            *shape,
            "--rdzv-backend=c10d",
            rendezvous,
            log=trainer.root / f"{run}.node{node}.log",
        )
        for node in range(2)
    ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ends(launchers: list[subprocess.Popen[bytes]]) -> list[int]:
    try:
        return [launcher.wait(DEADLINE_S) for launcher in launchers]
    finally:
        for launcher in launchers:
            if launcher.poll() is None:
                launcher.kill()


def test_two_nodes_one_reclaimed_both_end_with_75_and_the_next_attempt_is_exact(
    trainer: Trainer, control: RunFiles
) -> None:
    files = trainer.files("run")
    nodes = two_nodes(trainer, "run", free_port())
    until(lambda: files.last_step() >= 3, "step 3")
    nodes[1].send_signal(signal.SIGTERM)
    assert ends(nodes) == [75, 75]
    stopped = files.last_step()
    assert 3 <= stopped < STEPS
    assert ends(two_nodes(trainer, "run", free_port())) == [0, 0]
    assert files.events("resumed")[-1]["from_step"] == stopped
    assert_same(files, control)


def test_a_bad_configuration_ends_with_78_and_its_line_once(trainer: Trainer) -> None:
    bad, log = trainer.root / "bad.yaml", trainer.root / "log"
    bad.write_text("stepz: 3\n")
    node = launch(trainer, "run", "--standalone", "--nproc-per-node=2", log=log, config=str(bad))
    assert ends([node]) == [78]
    said = log.read_text()
    assert said.count("stepz: unknown; did you mean steps?") == 1
    assert "Traceback" not in said


def test_a_killed_rank_is_a_failure_and_no_process_is_left(trainer: Trainer) -> None:
    files, log = trainer.files("run"), trainer.root / "log"
    node = launch(trainer, "run", "--standalone", "--nproc-per-node=2", log=log)
    until(lambda: files.last_step() >= 1, "step 1")
    children = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()
    assert len(children) == 2
    subprocess.run(["kill", "-9", children[1]], check=True)
    (code,) = ends([node])
    assert code not in (0, 75, 78)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "both ranks' end")
