"""Peer memory: what snapshots after every step cost, and what the loss of a node costs with and without them.

Two ranks share the parameters. *Steady state*: whole runs with and without snapshots, A B B A. *Loss*: all
processes of one of two nodes are killed and started again at once; from the kill to the first new step, and
steps done again.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.statistics import median_and_bound
from bench.trainer import Progress
from bench.trainer.elastic_groups import free_port
from bench.trainer.live_runs import (
    ROOT,
    WAIT_S,
    LiveRun,
    Shape,
    prepare_dataset,
    step_and_stall_seconds,
    trainer_run,
)
from training.peer_memory.wire import address_file
from trainyard.contract import PEER_MEMORY_ENV
from trainyard.restarts import INDEX_ENV

SIZES: Final = {
    "small": {"pairs": 1, "steps": 14, "losses": 1},
    "full": {"pairs": 6, "steps": 40, "losses": 8},
}
OVERHEAD_GOAL: Final = 1.03
_SHAPE: Final = Shape(hidden=256, layers=4)
_SAMPLES: Final = 64
_WARM_UP: Final = 5
"""Steps that are not measured."""
_FOREVER: Final = 10**9
_EVERY: Final = 20
"""Steps between checkpoints of the runs that lose a node."""


def run(sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
    """Measure; return the section, and whether no step that was written down was done again."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        root = Path(folder)
        data = prepare_dataset(root)
        steady = _steady_state(root, data, sizes, notify)
        losses = {
            every: _losses(root / f"losses{every}", data, every, sizes["losses"], chance, notify)
            for every in (0, 1)
        }
    return _section(steady, losses, seed), not any(one.again for one in losses[1])


# Steady state


@dataclass(frozen=True)
class _Steady:
    ratios: list[float]
    plain_s: float
    stall_s: float
    """Wait for the copies, median of the steps with snapshots."""


def _steady_state(root: Path, data: Path, sizes: Mapping[str, int], notify: Progress) -> _Steady:
    ratios, plain, stalls = [], [], []
    for pair in range(sizes["pairs"]):
        seconds: dict[int, float] = {}
        for every in (0, 1) if pair % 2 else (1, 0):
            notify("steady state", 2 * sizes["pairs"], 2 * pair + len(seconds))
            folder = root / f"steady{pair}-{every}"
            seconds[every], stall = _run_to_the_end(folder, data, every, sizes["steps"])
            stalls += [stall] if every else []
        ratios.append(seconds[1] / seconds[0])
        plain.append(seconds[0])
    return _Steady(ratios, statistics.median(plain), statistics.median(stalls))


def _run_to_the_end(folder: Path, data: Path, every: int, steps: int) -> tuple[float, float]:
    live = trainer_run(folder, data, _SHAPE, steps, _FOREVER, 0)
    live.command += _settings(every)
    with _keepers(folder) as environment:
        live.environment = environment
        live.start()
        if live.wait():
            raise TimeoutError(f"the run failed; see {folder / 'log'}")
    durations, stalls = step_and_stall_seconds(folder / "run")
    return statistics.median(durations[_WARM_UP:]), statistics.median(stalls)


def _settings(every: int) -> list[str]:
    values = ["parallel.shard=2", f"peer_memory.every_steps={every}"]
    values += [f"batch.global_samples={_SAMPLES}", "evaluation.samples=2"]
    return [word for value in values for word in ("--set", value)]


@contextmanager
def _keepers(folder: Path) -> Iterator[dict[str, str]]:
    """Start the keepers of two nodes; both ranks are on the first. Yield their environment."""
    processes = []
    try:
        for node in (0, 1):
            environment = {PEER_MEMORY_ENV: str(folder / f"keeper{node}"), INDEX_ENV: str(node)}
            command = [sys.executable, "-m", "training.peer_memory.keeper", "--nodes=2"]
            command.append(f"--run-dir={folder / 'run'}")
            processes.append(
                subprocess.Popen(
                    command, cwd=ROOT, env=os.environ | environment, stdin=subprocess.PIPE
                )
            )
            _until_exists(address_file(folder / "run", node), Path(environment[PEER_MEMORY_ENV]))
        yield {PEER_MEMORY_ENV: str(folder / "keeper0")}
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _until_exists(*files: Path) -> None:
    limit = time.monotonic() + WAIT_S
    while not all(file.exists() for file in files):
        if time.monotonic() > limit:
            raise TimeoutError(f"{files[0]} does not appear")
        time.sleep(0.01)


# Loss of a node


@dataclass(frozen=True)
class _Loss:
    seconds: float
    """From the kill to the first new step."""
    again: int
    """Steps that were written down and were done again."""


def _losses(
    root: Path, data: Path, every: int, count: int, chance: random.Random, notify: Progress
) -> list[_Loss]:
    root.mkdir()
    port = free_port()
    nodes = [_node(root, data, every, node, port) for node in (0, 1)]
    found: list[_Loss] = []
    try:
        for live in nodes:
            live.start()
        mark = nodes[0].reach(_EVERY + 1)
        for number in range(count):
            notify(f"loss of a node, every_steps {every}", count, number)
            mark = nodes[0].reach(mark.step + chance.randrange(3, _EVERY))
            begun = time.time()
            nodes[1].kill()
            done = nodes[0].mark()
            assert done
            nodes[1].start()
            mark = nodes[0].next_mark(done)
            found.append(_Loss(mark.at - begun, max(0, done.step - mark.step + 1)))
    finally:
        for live in nodes:
            live.signal(signal.SIGKILL)
    return found


def _node(root: Path, data: Path, every: int, node: int, port: int) -> LiveRun:
    """One node as the pod of an indexed-job runs it."""
    live = trainer_run(root / f"node{node}", data, Shape(hidden=64, layers=4), _FOREVER, _EVERY, 0)
    run, shared = str(root / f"node{node}" / "run"), str(root / "node0" / "run")
    program = [shared if word == run else word for word in live.command]
    first = program.index("--standalone")
    program[first : first + 2] = [
        *("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=bench"),
        f"--rdzv-endpoint=127.0.0.1:{port}",
    ]
    keeper = f"{sys.executable} -m training.peer_memory.keeper --run-dir {shared} --nodes 2"
    parent = [sys.executable, "-m", "trainyard.restarts", "--job-kind=indexed-job"]
    parent += ["--max-restarts=1000", f"--state={shared}/restarts.json", f"--companion={keeper}"]
    live.command = [*parent, "--", *program, *_settings(every)]
    live.environment = {INDEX_ENV: str(node)}
    return live


def _section(steady: _Steady, losses: Mapping[int, list[_Loss]], seed: int) -> str:
    ratio, low, high = median_and_bound(steady.ratios)
    verdict = "met" if ratio <= OVERHEAD_GOAL else f"missed by {ratio - OVERHEAD_GOAL:.3f}"
    lines = [
        "Peer memory: the state of a run in the memory of two nodes, here two processes of one machine.",
        "",
        f"A step of {steady.plain_s:.2f} s with a snapshot after it takes {ratio:.3f} times as long ({low:.3f} to "
        f"{high:.3f}, {len(steady.ratios)} pairs; goal at most {OVERHEAD_GOAL}: {verdict}). Of it "
        f"{1000 * steady.stall_s:.1f} ms are the copy and the wait for the next node.",
        "",
        "All processes of one of two nodes are killed after a random step, and started again at once (seed "
        f"{seed}). Storage has a checkpoint every {_EVERY} steps.",
        "",
        "| | times | from the kill to the next step, s | steps done again, mean | most |",
        "|---|---|---|---|---|",
    ]
    for every, name in ((0, "from the checkpoint in storage"), (1, "from peer memory")):
        seconds = statistics.median(one.seconds for one in losses[every])
        again = [one.again for one in losses[every]]
        lines.append(
            f"| {name} | {len(again)} | {seconds:.1f} | {statistics.mean(again):.1f} | {max(again)} |"
        )
    return "\n".join(lines) + "\n"
