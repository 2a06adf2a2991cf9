"""A simulated month of a fleet: runs queue, start, train, are interrupted and fail; nodes come, break and go.

The simulation counts the node-seconds of every bucket itself while it runs, and writes down the facts that a
collector would see. It knows nothing of the accounting under test.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ops.ledger.model import Bucket, Cause, Fact, Fault, Hold, Node, Phase, Wait

MONTH_S = 30 * 86_400.0
POOLS = (("ondemand", "on-demand", 22.0, 40), ("spot", "spot", 12.5, 60))
"""Name, purchase, USD per node-hour, nodes."""


@dataclass
class _Run:
    name: str
    team: str
    pool: str
    nodes: int
    left_s: float
    """Work in seconds of steps."""
    attempt: int = 0
    since: float = 0.0
    """When it began to wait."""
    lost_s: float = 0.0


@dataclass
class _Attempt:
    run: _Run
    nodes: list[str]
    start: float
    startup_s: float
    train_s: float
    end_s: float
    cause: Cause
    victim: str = ""


@dataclass
class World:
    """The facts of the month, and the truth about its time."""

    facts: list[Fact] = field(default_factory=list)
    truth: dict[Bucket, float] = field(default_factory=lambda: defaultdict(float))
    """Node-seconds by bucket; IDLE and WAITING are counted together, as IDLE."""
    node_seconds: float = 0.0
    usd: float = 0.0
    runs: int = 0


class _Pool:
    def __init__(self, name: str, purchase: str, usd: float, size: int) -> None:
        self.name, self.purchase, self.usd, self.size = name, purchase, usd, size
        self.free: list[str] = []
        self.born: dict[str, float] = {}
        self.queue: list[_Run] = []
        self.made = 0


class _Simulation:
    def __init__(self, runs: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(runs=runs)
        self.pools = {name: _Pool(name, *rest) for name, *rest in POOLS}  # type: ignore[arg-type]
        self.events: list[tuple[float, int, str, object]] = []
        self.order = 0
        self.busy: dict[str, float] = defaultdict(float)
        """Node-seconds that are no idle time, by node."""
        for pool in self.pools.values():
            for _ in range(pool.size):
                self.at(self.random.uniform(0, 3600), "node", pool)
        for number in range(runs):
            self.at(self.random.uniform(0, MONTH_S), "run", self.new_run(number))

    def at(self, time: float, kind: str, what: object) -> None:
        self.order += 1
        heapq.heappush(self.events, (time, self.order, kind, what))

    def new_run(self, number: int) -> _Run:
        pool = self.random.choice(list(self.pools))
        nodes = self.random.choice((1, 1, 1, 2, 4, 8))
        work = self.random.expovariate(1 / 9_000) * 4 / nodes + 60
        return _Run(f"run-{number}", f"team-{number % 5}", pool, nodes, work)

    def go(self) -> World:
        while self.events and self.events[0][0] < MONTH_S:
            time, _, _, what = heapq.heappop(self.events)
            if isinstance(what, _Pool):
                self.add_node(time, what)
                self.admit(time, what)
            elif isinstance(what, _Run):
                what.since = time
                pool = self.pools[what.pool]
                pool.queue.append(what)
                self.admit(time, pool)
            elif isinstance(what, _Attempt):
                self.end(time, what)
            else:
                pool_name, node = str(what).split("/", 1)
                pool = self.pools[pool_name]
                pool.free.append(f"{pool_name}/{node}")
                self.admit(time, pool)
        self.close()
        return self.world

    def add_node(self, time: float, pool: _Pool) -> None:
        pool.made += 1
        uid = f"{pool.name}/{pool.made}"
        pool.born[uid] = time
        pool.free.append(uid)

    def admit(self, time: float, pool: _Pool) -> None:
        while pool.queue and len(pool.free) >= pool.queue[0].nodes:
            run = pool.queue.pop(0)
            nodes = [pool.free.pop(0) for _ in range(run.nodes)]
            self.wait_fact(run, time)
            self.start(time, run, nodes, pool)

    def wait_fact(self, run: _Run, end: float | None) -> None:
        self.world.facts.append(
            Wait(
                run=run.name,
                team=run.team,
                start=run.since,
                end=end,
                pools=(run.pool,),
                nodes=run.nodes,
            )
        )

    def start(self, time: float, run: _Run, nodes: list[str], pool: _Pool) -> None:
        run.attempt += 1
        startup = self.random.uniform(30, 600)
        work = run.left_s / 0.98  # the rest of a phase: saves
        mean = 40_000 / run.nodes if pool.purchase == "spot" else 400_000 / run.nodes
        until = self.random.expovariate(1 / mean)
        if until > work:
            one = _Attempt(run, nodes, time, startup, work, self.random.uniform(1, 20), Cause.DONE)
        else:
            causes = (Cause.RECLAIM, Cause.PREEMPTION, Cause.NODE, Cause.HANG, Cause.FAILURE)
            cause = self.random.choice(causes)
            victim = self.random.choice(nodes) if cause in (Cause.RECLAIM, Cause.NODE) else ""
            early = self.random.random() < 0.1  # before its first step
            startup = min(startup, until) if early else startup
            train = 0.0 if early else until
            one = _Attempt(
                run, nodes, time, startup, train, self.random.uniform(5, 120), cause, victim
            )
        self.at(time + one.startup_s + one.train_s + one.end_s, "end", one)

    def end(self, time: float, one: _Attempt, *, cut: bool = False) -> None:
        """Book an attempt that ended; `cut`: by the end of the month."""
        run, world = one.run, self.world
        pool, width = self.pools[run.pool], len(one.nodes)
        first = one.start + one.startup_s
        last = first + one.train_s
        for number, node in enumerate(one.nodes):
            world.facts.append(
                Hold(
                    uid=f"{run.name}/{run.attempt}/{number}",
                    node=node,
                    run=run.name,
                    team=run.team,
                    start=one.start,
                    end=None if cut else time,
                )
            )
            self.busy[node] += time - one.start
        if one.train_s:
            trained = min(last, time) - first
            if trained > 0:
                self.phase(one, first, first + trained)
                for bucket, part in self.shares(one).items():
                    world.truth[bucket] += width * trained * part
            after = max(0.0, time - last)
            world.truth[Bucket.STARTING] += width * (min(first, time) - one.start)
            world.truth[Bucket.SAVE] += width * after
        else:
            world.truth[Bucket.STARTING] += width * (time - one.start)
        if not cut:
            self.release(time, one, pool)

    @staticmethod
    def shares(one: _Attempt) -> dict[Bucket, float]:
        replayed = 0.0 if one.cause in (Cause.DONE, Cause.PREEMPTION) else 0.08
        return {
            Bucket.REPLAYED: replayed,
            Bucket.PRODUCTIVE: 0.98 - replayed,
            Bucket.SAVE: 0.02,
        }

    def phase(self, one: _Attempt, first: float, last: float) -> None:
        named = {b.value: p * (last - first) for b, p in self.shares(one).items()}
        named.pop(Bucket.PRODUCTIVE.value)
        self.world.facts.append(
            Phase(
                run=one.run.name,
                attempt=one.run.attempt,
                start=first,
                end=last,
                seconds=named,
                steps=int(last - first),
                ended=one.cause,
            )
        )

    def release(self, time: float, one: _Attempt, pool: _Pool) -> None:
        for node in one.nodes:
            if node != one.victim:
                pool.free.append(node)
        if one.victim and one.cause is Cause.RECLAIM:
            self.remove(one.victim, time, pool)
            self.at(time + self.random.uniform(60, 4_000), "node", pool)
        elif one.victim:
            repaired = time + self.random.uniform(600, 20_000)
            self.world.facts.append(
                Fault(node=one.victim, start=time, end=repaired, cause="NotReady")
            )
            within = min(repaired, MONTH_S) - time
            self.world.truth[Bucket.IDLE] += within
            self.busy[one.victim] += within
            self.at(repaired, "repaired", one.victim)
        useful = one.train_s * self.shares(one)[Bucket.PRODUCTIVE]
        one.run.left_s -= useful
        if one.cause is not Cause.DONE and one.run.left_s > 1:
            self.at(time + 1e-3, "run", one.run)
        self.admit(time, pool)

    def remove(self, node: str, time: float | None, pool: _Pool) -> None:
        born = pool.born.pop(node)
        self.world.facts.append(
            Node(
                uid=node,
                pool=pool.name,
                start=born,
                end=time,
                purchase=pool.purchase,
                usd_per_hour=pool.usd,
            )
        )
        life = (MONTH_S if time is None else time) - born
        self.world.node_seconds += life
        self.world.usd += life * pool.usd / 3600
        self.world.truth[Bucket.IDLE] += life - self.busy[node]

    def close(self) -> None:
        """The month ends: what goes on is cut."""
        for _, _, _, what in sorted(self.events, key=lambda one: one[:2]):
            if isinstance(what, _Attempt):
                self.end(MONTH_S, what, cut=True)
        for pool in self.pools.values():
            for run in pool.queue:
                self.wait_fact(run, None)
            for node in list(pool.born):
                self.remove(node, None, pool)


def simulate(runs: int, seed: int) -> World:
    """Simulate a month with this many runs."""
    return _Simulation(runs, seed).go()


def shuffled(facts: list[Fact], seed: int) -> Iterator[Fact]:
    """The facts in another order, some of them twice."""
    chance = random.Random(seed)
    twice = [*facts, *chance.sample(facts, len(facts) // 3)]
    chance.shuffle(twice)
    yield from twice
