"""One rank of the benchmark `culprit`: two runs in one process, one records and one does not.

Reads {"folder", "pairs"} as JSON from its argument; rank 0 answers with the seconds of each step.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch

from bench.trainer.host_arms import SAMPLES
from training.trainer import assembly, loop
from training.trainer.flight.recorder import Recorder
from training.trainer.parallel.world import World, fix_numerics, join_world
from training.trainer.preflight import RunRequest, check_request
from trainyard.culprits import Culprit
from trainyard.notice import Notice

WARMUP: Final = 20
COMPARISONS: Final = 30


class _NoRecorder(Recorder):
    def enter(self, phase: int, step: int | None = None) -> None:
        """Do nothing."""


class _NoRecording:
    """A Recording that records and watches nothing."""

    def __init__(self, *_: Any) -> None:
        def announce(name: str, culprit: Culprit) -> None:
            raise RuntimeError(f"{name}: {culprit.what}")

        self.recorder = _NoRecorder()
        self.watchdog = SimpleNamespace(announce=announce)

    def watch_gang(self, attempt: int) -> None:
        """Do nothing."""

    def count_collectives(self) -> None:
        """Do nothing."""


def main() -> None:
    """Alternate steps of both runs."""
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    answers = os.dup(1)
    os.dup2(2, 1)  # keep what libraries print out of the results
    folder, pairs = Path(asked["folder"]), int(asked["pairs"])
    config = _request(folder, "recorded").config
    fix_numerics(config)
    with join_world(config) as world:
        recorded = _build(folder, "recorded", world)
        threads = {thread.name: thread for thread in threading.enumerate()}
        watchdog = threads["watchdog"].native_id or 0
        module: Any = assembly
        module.Recording, module.make_clock = _NoRecording, lambda *_: None
        plain = _build(folder, "plain", world)
        plain.replicas = None
        taken: dict[str, list[tuple[float, float]]] = {"plain": [], "recorded": [], "compared": []}
        for _ in range(WARMUP):
            loop.train_step(plain)
            loop.train_step(recorded)
        begun, spent = time.perf_counter(), _thread_seconds(watchdog)
        taken["plain"].append(_timed(lambda: loop.train_step(plain)))
        for _ in range(pairs):
            taken["recorded"].append(_timed(lambda: loop.train_step(recorded)))
            taken["plain"].append(_timed(lambda: loop.train_step(plain)))
        share = (_thread_seconds(watchdog) - spent) / (time.perf_counter() - begun)
        assert recorded.replicas is not None
        for number in range(COMPARISONS):
            loop.train_step(recorded)
            step = 10**6 + number  # not the step that was compared last
            compare = functools.partial(recorded.replicas.compare, step)
            taken["compared"].append(_timed(compare))
        if world.is_leader:
            answer = {**taken, "watchdog_share": share}
            os.write(answers, json.dumps(answer).encode() + b"\n")
        world.sum([0.0])  # no rank ends before the other
        os._exit(0)  # taking libraries apart is not measured


def _build(folder: Path, name: str, world: World) -> loop.Run:
    return assembly.assemble(_request(folder, name), world, Notice(folder / name))


def _request(folder: Path, name: str) -> RunRequest:
    """Return the run of this name, with as many samples per rank as the model has alone."""
    samples = f"batch.global_samples={SAMPLES * int(os.environ['WORLD_SIZE'])}"
    return check_request(folder / "config.yaml", [samples], folder / name, None)


def _timed(action: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds that something takes: by the clock, and of this thread's processor time."""
    begun, spent = time.perf_counter(), time.thread_time()
    action()
    return time.perf_counter() - begun, time.thread_time() - spent


def _thread_seconds(thread: int) -> float:
    """Return the processor time of a thread of this process."""
    return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    main()
