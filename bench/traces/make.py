"""`python -m bench.traces.make SEED`: regenerate the synthetic traces of this folder.

Capacity that comes and goes: up and down times are drawn from a mixture of short and long ones, as
recorded traces have. Nothing is taken from any recording.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

TICK_S, TICKS = 300, 1000


def generate_trace(chance: random.Random, nodes: int, calm: float) -> list[int]:
    """Instances at each tick; `calm` is the share of long times with capacity."""
    ticks: list[int] = []
    while len(ticks) < TICKS:
        mean = 60 if chance.random() < calm else 8
        ticks += [nodes] * max(1, round(chance.expovariate(1 / mean)))
        left = chance.randrange(nodes)
        ticks += [left] * max(1, round(chance.expovariate(1 / 10)))
    return ticks[:TICKS]


def main(seed: int) -> None:
    """Write them all."""
    chance = random.Random(seed)
    for name, nodes, calm in (("calm", 1, 0.8), ("busy", 1, 0.2), ("gang", 4, 0.5)):
        found = {
            "metadata": {"gap_seconds": TICK_S, "seed": seed},
            "data": generate_trace(chance, nodes, calm),
        }
        Path(__file__).with_name(f"{name}.json").write_text(json.dumps(found) + "\n")
    print(f"seed {seed}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
