"""A simulated month of a fleet: runs start, train, are interrupted and fail; nodes come, break and go.

The simulation counts the node-seconds of every bucket itself, and writes down the facts that a collector sees. It
knows nothing of the accounting under test.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from ops.ledger.model import Bucket, Cause, Fact, Fault, Hold, Node, Phase, Wait

MONTH_S = 30 * 86_400.0
POOLS = (("ondemand", "on-demand", 22.0), ("spot", "spot", 12.5))
"""Name, purchase, USD per node-hour."""
CAUSES = (Cause.DONE, Cause.RECLAIM, Cause.PREEMPTION, Cause.NODE, Cause.HANG, Cause.FAILURE)


@dataclass
class World:
    """The facts of the month, and the truth about its time."""

    facts: list[Fact] = field(default_factory=list)
    truth: dict[Bucket, float] = field(default_factory=lambda: defaultdict(float))
    """Node-seconds by bucket; IDLE and WAITING are counted together, as IDLE."""
    node_seconds: float = 0.0
    usd: float = 0.0


class _Lane:
    """Some nodes that one run after another holds all of."""

    def __init__(self, world: World, chance: random.Random, number: int) -> None:
        self.world, self.chance, self.number = world, chance, number
        self.pool, self.purchase, self.usd = chance.choice(POOLS)
        self.born = {self.node(n): chance.uniform(0, 3600) for n in range(chance.choice((1, 2, 8)))}
        self.busy: dict[str, float] = defaultdict(float)

    def node(self, number: int) -> str:
        return f"{self.number}/{number}"

    def go(self, runs: int) -> None:
        now, nodes = 3600.0, len(self.born)
        for number in range(runs):
            run, attempt, cause = f"run-{self.number}-{number}", 0, Cause.UNKNOWN
            waits = Wait(run=run, team="a", start=now, pools=(self.pool,), nodes=nodes)
            now += self.chance.expovariate(runs / MONTH_S) / 2
            self.world.facts.append(Wait(**waits.__dict__ | {"end": now}))
            while cause is not Cause.DONE and now < MONTH_S:
                attempt, cause = attempt + 1, self.chance.choice(CAUSES)
                now = self.attempt(run, attempt, cause, now)
        for node in list(self.born):
            self.remove(node, None)

    def attempt(self, run: str, attempt: int, cause: Cause, start: float) -> float:
        """Book an attempt; return when all nodes are free again."""
        early = self.chance.random() < 0.1  # it ends before its first step
        first = start + self.chance.uniform(30, 600)
        last = first if early else first + self.chance.expovariate(1 / 4000)
        ended = last + self.chance.uniform(1, 120)
        cut = min(ended, MONTH_S)
        for node in self.born:
            end = None if ended > MONTH_S else ended
            uid = f"{run}/{attempt}/{node}"
            self.world.facts.append(
                Hold(uid=uid, node=node, run=run, team="a", start=start, end=end)
            )
            self.busy[node] += cut - start
        truth, width = self.world.truth, len(self.born)
        trained = min(last, cut) - first
        if trained > 0:
            replayed = 0.0 if cause in (Cause.DONE, Cause.PREEMPTION) else 0.08
            parts = {Bucket.REPLAYED: replayed * trained, Bucket.SAVE: 0.02 * trained}
            phase = Phase(
                run=run,
                attempt=attempt,
                start=first,
                end=first + trained,
                seconds={bucket.value: part for bucket, part in parts.items()},
                steps=int(trained),
                ended=cause,
            )
            self.world.facts.append(phase)
            for bucket, part in parts.items():
                truth[bucket] += width * part
            truth[Bucket.PRODUCTIVE] += width * (trained - sum(parts.values()))
            truth[Bucket.SAVE] += width * max(0.0, cut - last)
            truth[Bucket.STARTING] += width * (first - start)
        else:
            truth[Bucket.STARTING] += width * (cut - start)
        return self.repaired(cause, ended) if ended < MONTH_S else ended

    def repaired(self, cause: Cause, time: float) -> float:
        victim, back = next(iter(self.born)), time + self.chance.uniform(60, 4000)
        if cause is Cause.RECLAIM:
            self.remove(victim, time)
            self.born[f"{victim}+"] = min(back, MONTH_S)
        elif cause is Cause.NODE:
            self.world.facts.append(Fault(node=victim, start=time, end=back, cause="NotReady"))
        else:
            return time
        return back

    def remove(self, node: str, time: float | None) -> None:
        born = self.born.pop(node)
        about = {"pool": self.pool, "purchase": self.purchase, "usd_per_hour": self.usd}
        self.world.facts.append(Node(uid=node, start=born, end=time, **about))  # type: ignore[arg-type]
        life = (MONTH_S if time is None else time) - born
        self.world.node_seconds += life
        self.world.usd += life * self.usd / 3600
        self.world.truth[Bucket.IDLE] += life - self.busy[node]


def simulate(runs: int, seed: int) -> World:
    """Simulate a month with about this many runs."""
    world, chance = World(), random.Random(seed)
    for number in range(max(1, runs // 50)):
        _Lane(world, chance, number).go(50)
    return world
