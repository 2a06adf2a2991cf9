"""What the fault suites did: one row per fault, shown at the end and, by `--full`, kept in bench/RESULTS.md."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "bench" / "RESULTS.md"
BEGIN, END = "<!-- written by `make soak` -->", "<!-- end -->"
_TITLES = ("fault", "times", "seed", "most steps done again", "result", "on")


@dataclass
class Trials:
    """The repetitions of one fault."""

    full: bool
    fault: str = ""
    count: int = 0
    most_lost: int | None = None
    """Steps that a resumed run had to do again, at most; None where none could be lost."""
    passed: bool = False
    day: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d}")
    seed: int = field(default_factory=lambda: seed())
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def numbers(self, fault: str, small: int, full: int) -> range:
        """Return the numbers of a fault's trials: `small` of them, with --full `full`."""
        self.fault, self.count = fault, full if self.full else small
        return range(self.count)

    def lost(self, steps: int) -> None:
        """This trial had to do so many steps again."""
        self.most_lost = max(self.most_lost or 0, steps)

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        lost = "" if self.most_lost is None else str(self.most_lost)
        result = "passed" if self.passed else "FAILED"
        return (self.fault, str(self.count), str(self.seed), lost, result, self.day)


def seed() -> int:
    """As everywhere in these tests: random, unless TRAINYARD_TEST_SEED is set."""
    return int(os.environ.get("TRAINYARD_TEST_SEED", random.SystemRandom().randrange(10**6)))


def table(rows: Sequence[Trials]) -> str:
    """All rows as Markdown."""
    lines = [_TITLES, ("---",) * len(_TITLES), *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def with_table(page: str, rows: Sequence[Trials]) -> str:
    """A page with the part between the marks replaced; rows of other faults stay."""
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    fresh = table(rows).splitlines()
    names = {row.fault for row in rows}
    kept = [
        line
        for line in old.splitlines()
        if line.startswith("| ") and line.split(" | ")[0].removeprefix("| ") not in names
    ]
    lines = [*fresh[:2], *(line for line in kept if line not in fresh[:2]), *fresh[2:]]
    return f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}"
