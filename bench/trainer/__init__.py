"""Benchmarks of the trainer and its parts (P1 to P7), without a cluster.

Each module measures one thing against its peers in one run:

    SIZES: dict[str, dict[str, int]]         how much, by scale (small, full)
    run(sizes, seed, told) -> (Markdown, whether all that must hold held)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

Progress = Callable[[str, int, int], None]
"""Receives the activity, the total, and how many are done."""


class Benchmark(Protocol):
    """What a module of this package offers."""

    SIZES: dict[str, dict[str, int]]

    def run(self, sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
        """Measure; the section for RESULTS.md, and whether what must hold held."""


MODULES: dict[str, str] = {
    "durable": "bench.trainer.durable",
    "goodput": "bench.trainer.goodput",
    "restart": "bench.trainer.restart",
    "stall": "bench.trainer.stall",
    "host": "bench.trainer.host",
    "loader": "bench.trainer.loader",
    "gpu": "bench.trainer.gpu",
}
"""Module by the benchmark's name."""
