"""Which nodes to cordon, because runs have named a rank on them again and again. Pure.

A run names a node in its own metrics, which its team can write. So a node counts only while, or shortly after,
a pod of that run was seen on it, at most one node of a pool is cordoned in an hour, and never more than a tenth
of a pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ops.metrics import Sample
from trainyard.culprits import CORRUPT, HUNG, SLOW_RANK

REMEMBERED_S: Final = 3600.0
"""For how long a node counts that a run has left, and a verdict that was not repeated."""
SLOW_S: Final = 600.0
"""For how long a rank must have been slow."""
HANGS: Final = 2
"""Hangs of ranks on a node: the first may be the program's."""
PAUSE_S: Final = 3600.0
"""Between two nodes of a pool."""
PART: Final = 0.1
"""Part of a pool that may be cordoned for this, but always one node."""

Run = tuple[str, str]
"""Namespace and run id."""


@dataclass(frozen=True, kw_only=True)
class Named:
    """One verdict of a run."""

    run: Run
    symptom: str
    rank: str
    node: str
    time: float
    """When the rank was last named, in Unix seconds."""


@dataclass
class Record:
    """What the last hour has shown, look by look."""

    held: dict[tuple[Run, str], float] = field(default_factory=dict)
    """When a pod of a run was last seen on a node."""
    named: dict[Named, float] = field(default_factory=dict)
    """When each verdict was first seen here."""
    slow_since: dict[tuple[Run, str, str], float] = field(default_factory=dict)
    """Since when a rank of a run has been named as slow on a node."""

    def look(self, held: Mapping[Run, Iterable[str]], found: Iterable[Named], now: float) -> None:
        """Add a look; `held`: names of the nodes of each run."""
        for run, nodes in held.items():
            self.held |= {(run, node): now for node in nodes}
        self.held = {k: at for k, at in self.held.items() if now - at < REMEMBERED_S}
        self.named = {one: at for one, at in self.named.items() if now - one.time < REMEMBERED_S}
        slow = set()
        for one in found:
            if now - one.time >= REMEMBERED_S or (one.run, one.node) not in self.held:
                continue
            self.named.setdefault(one, now)
            if one.symptom == SLOW_RANK:
                key = (one.run, one.rank, one.node)
                slow.add(key)
                self.slow_since.setdefault(key, one.time)
        self.slow_since = {key: at for key, at in self.slow_since.items() if key in slow}

    def suspects(self, now: float) -> dict[str, str]:
        """Return the nodes to cordon, and why."""
        found: dict[str, str] = {}
        hangs: dict[str, set[tuple[Run, float]]] = {}
        for one in sorted(self.named, key=lambda one: one.time):
            if one.symptom == CORRUPT:
                found.setdefault(one.node, f"rank {one.rank} of {one.run[1]} computed wrong values")
            elif one.symptom == HUNG and one.rank != "-1":
                hangs.setdefault(one.node, set()).add((one.run, one.time))
        for node, times in hangs.items():
            if len(times) >= HANGS:
                found.setdefault(node, f"{len(times)} hangs of ranks on it within an hour")
        for (run, rank, node), since in self.slow_since.items():
            if now - since >= SLOW_S:
                minutes = (now - since) / 60
                text = f"rank {rank} of {run[1]} has been slow for {minutes:.0f} min"
                found.setdefault(node, text)
        return found


def allowed(
    suspects: Mapping[str, str],
    pools: Mapping[str, str],
    cordoned: Mapping[str, float],
    now: float,
) -> list[str]:
    """Return the suspects that may be cordoned now.

    `pools`: the pool of each node that is there; `cordoned`: nodes that were cordoned for this, and when.
    """
    found: list[str] = []
    for node in suspects:
        pool = pools.get(node)
        if pool is None or node in cordoned:
            continue
        size = sum(other == pool for other in pools.values())
        there = [at for other, at in cordoned.items() if pools.get(other) == pool]
        there += [now for other in found if pools[other] == pool]
        recent = any(now - at < PAUSE_S for at in there)
        if not recent and len(there) < max(1, int(PART * size)):
            found.append(node)
    return found


def parse(samples: Iterable[Sample]) -> list[Named]:
    return [
        Named(
            run=(one.labels.get("namespace", ""), one.labels.get("run_id", "")),
            symptom=one.labels.get("symptom", ""),
            rank=one.labels.get("culprit_rank", ""),
            node=one.labels.get("culprit_node", ""),
            time=one.value,
        )
        for one in samples
    ]
