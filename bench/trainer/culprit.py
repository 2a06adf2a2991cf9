"""What it costs to know who is to blame: recording, watching and comparing replicas, against a trainer without."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.statistics import median_and_bound
from bench.trainer import Progress, host, peers
from bench.trainer.elastic_groups import free_port

SIZES: dict[str, dict[str, int]] = {
    "small": {"pairs": 150, "rounds": 1},
    "full": {"pairs": 1000, "rounds": 3},
}
GOAL: Final = 0.01
"""Maximum part of a step."""
COMPARED_EVERY: Final = 100
"""Steps between two comparisons of replicas, by default."""
RANKS: Final = 2
_MODULE: Final = "bench.trainer.culprit_ranks"
_TIMEOUT_S: Final = 1800.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Milliseconds per step: median and bound."""

    step: float
    """A step of the trainer that records nothing, by the clock."""
    clock: tuple[float, float, float]
    """A step that records above its two neighbours that do not, by the clock."""
    cpu: tuple[float, float, float]
    """The same in processor time of the thread that trains."""
    comparing: tuple[float, float, float]
    """One comparison of replicas by the clock, divided by the steps between two."""
    watching: float
    """Processor time of the watchdog's thread in the time of a step."""

    @property
    def part(self) -> float:
        """All of it as a part of a step, by the medians, and by the worse of clock and processor time."""
        recording = max(self.clock[0], self.cpu[0])
        return (recording + self.comparing[0] + self.watching) / self.step


def run(sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
    """Play rounds of two ranks, whose steps record or not by turns."""
    answers = []
    for number in range(sizes["rounds"]):
        notify("rounds", sizes["rounds"], number)
        answers.append(measure(sizes["pairs"], seed))
    cost = cost_of(answers)
    return table(cost, sizes, seed), True


def measure(pairs: int, seed: int) -> dict[str, Any]:
    """Return what rank 0 measured. Raises PeersError."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        host.prepare(folder, seed)
        asked = json.dumps({"folder": str(folder), "pairs": pairs})
        port = str(free_port())
        started = [_start(rank, port, asked) for rank in range(RANKS)]
        try:
            outputs = [one.communicate(timeout=_TIMEOUT_S) for one in started]
        finally:
            for one in started:
                one.kill()
    if any(one.returncode for one in started) or not outputs[0][0]:
        text = " ".join(error for _, error in outputs)
        raise peers.PeersError(f"culprit: {' '.join(text.split())[-300:]}")
    answer: dict[str, Any] = json.loads(outputs[0][0])
    return answer


def _start(rank: int, port: str, asked: str) -> subprocess.Popen[str]:
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE, asked],
        cwd=peers.ROOT,
        env={**os.environ, **own, **place},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def cost_of(answers: list[dict[str, Any]]) -> Cost:
    """Join the rounds."""
    plain = [clock for answer in answers for clock, _ in answer["plain"]]
    comparing = [1000 * s / COMPARED_EVERY for answer in answers for s, _ in answer["compared"]]
    step_ms = 1000 * statistics.median(plain)
    return Cost(
        step=step_ms,
        clock=median_and_bound(differences_ms(answers, 0)),
        cpu=median_and_bound(differences_ms(answers, 1)),
        comparing=median_and_bound(comparing),
        watching=step_ms * statistics.fmean(answer["watchdog_share"] for answer in answers),
    )


def differences_ms(answers: list[dict[str, Any]], column: int) -> list[float]:
    """Return milliseconds of each step that records above the mean of its two neighbours."""
    found = []
    for answer in answers:
        plain = [step[column] for step in answer["plain"]]
        recorded = [step[column] for step in answer["recorded"]]
        around = [(before + after) / 2 for before, after in pairwise(plain)]
        found += [1000 * (x - y) for x, y in zip(recorded, around, strict=True)]
    return found


def table(cost: Cost, sizes: Mapping[str, int], seed: int) -> str:
    """The section for RESULTS.md."""

    def line(what: str, span: tuple[float, float, float]) -> str:
        middle, low, high = span
        return f"| {what} | {middle:+.4f} ({low:+.4f} to {high:+.4f}) | {middle / cost.step:.2%} |"

    watched = cost.watching
    met = "met" if cost.part <= GOAL else "missed"
    return "\n".join(
        [
            f"{RANKS} ranks of the trainer with DistributedDataParallel on gloo, the model of `host` (146"
            f" tensors): a step takes {cost.step:.1f} ms. Steps of a run that records and of one that does"
            f" not alternate in the same processes ({sizes['rounds']} x {sizes['pairs']} pairs, seed {seed}).",
            "",
            "| what | ms per step (bound) | part of a step |",
            "|---|---|---|",
            line("recording, by the clock", cost.clock),
            line("recording, processor time of the training thread", cost.cpu),
            line(f"comparing replicas, every {COMPARED_EVERY} steps", cost.comparing),
            f"| watchdog thread, processor time | {watched:+.4f} | {watched / cost.step:.2%} |",
            "",
            f"Goal: at most {GOAL:.0%} of a step in all; {met} with {cost.part:.2%}.",
        ]
    )
