"""Benchmarks of the trainer and its parts (P1 to P7), without a cluster.

Each module measures one thing against its peers in one run:

    SIZES: dict[str, dict[str, int]]         how much, by scale (small, full)
    run(sizes, seed, notify) -> (Markdown, whether all assertions held)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

SAVE_INTERVAL_S: Final = 120.0
"""Time between checkpoints that the trainer's saver is told: how long it may pause depends on it."""
TRACES: Final = Path(__file__).parents[1] / "traces"
"""Synthetic traces of capacity, for a run without recorded ones."""
Progress = Callable[[str, int, int], None]
"""Receives the activity, the total and the number done."""


class Benchmark(Protocol):
    """What a module of this package offers."""

    SIZES: dict[str, dict[str, int]]

    def run(self, sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
        """Measure. Return the section of RESULTS.md, and whether all assertions held."""


MODULES: dict[str, str] = {
    "durable": "bench.trainer.durable",
    "restart": "bench.trainer.restart",
    "stall": "bench.trainer.stall",
    "host": "bench.trainer.host",
    "loader": "bench.trainer.loader",
    "elastic": "bench.trainer.elastic",
    "page": "bench.page",
}
"""Module by the benchmark's name."""
