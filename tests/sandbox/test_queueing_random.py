"""With random pools, teams and limits, the real Kueue never admits more than the pools have."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from typing import Any

import pytest

from infra.domain import naming
from tests.sandbox.conftest import Cluster
from tests.sandbox.queue_kit import Fleet, condition, held, holds_quota, pool, team_of

pytestmark = [pytest.mark.sandbox, pytest.mark.long(22)]

SEED = int(os.environ.get("QUEUEING_SEED", "0")) or random.randrange(1, 2**32)
RUNS, RUNS_FULL = 12, 100
SECONDS_A_RUN = 10.0
"""Maximum time per run; allows for a loaded machine."""
_QUIET_S = 3.0
"""Seconds without a completed run after which runs that never end are stopped."""


def _options(rng: random.Random, left: dict[str, int], sizes: dict[str, int]) -> dict[str, Any]:
    """Guarantees from what is left, and limits that the check lets pass."""
    own = {name: rng.randint(0, rest) for name, rest in left.items() if rng.random() < 0.6}
    for name, nodes in own.items():
        left[name] -= nodes
    room = {name: size - own.get(name, 0) for name, size in sizes.items()}
    return {
        "guaranteed": own,
        "borrowing": {
            name: rng.randint(1, n) for name, n in room.items() if n and rng.random() < 0.4
        },
        "lending": {name: rng.randint(0, n) for name, n in own.items() if rng.random() < 0.4},
        "fairWeight": rng.choice([1, 3]),
    }


def _fleet(cluster: Cluster, rng: random.Random) -> Fleet:
    sizes = {f"qr-{n}": rng.randint(2, 5) for n in range(3)}
    left = dict(sizes)
    teams = [team_of(f"qr{n}", **_options(rng, left, sizes)) for n in range(3)]
    pools = [pool(name, size) for name, size in sizes.items()]
    return Fleet(cluster, "queueing-random", pools, teams)


def _submit(fleet: Fleet, rng: random.Random, runs: int) -> tuple[dict[str, int], dict[str, str]]:
    """Submit gangs that fit their teams' limits; return nodes by run, and teams of runs that never end."""
    nodes: dict[str, int] = {}
    kept: dict[str, str] = {}
    for n in range(runs):
        team = rng.choice(sorted(fleet.platform.teams))
        most = {k: v for k, v in fleet.platform.teams[team].most_nodes.items() if v}
        if not most:
            continue
        size = rng.randint(1, max(most.values()))
        pools = [name for name, limit in most.items() if limit >= size]
        priority = rng.choice([None, "best-effort-training"])
        hold = n % 4 == 0
        run_id = fleet.start(team, f"r{n}", pools, nodes=size, priority=priority, hold=hold)
        nodes[run_id] = size
        if hold:
            kept[run_id] = team
    return nodes, kept


def _observe(fleet: Fleet, nodes: dict[str, int]) -> int:
    """Assert that no pool or limit is exceeded and no gang is partial; return the number of ended runs."""
    used: Counter[str] = Counter()
    used_by: Counter[tuple[str, str]] = Counter()
    ended = 0
    for run_id, workload in fleet.workloads().items():
        if holds_quota(workload):
            flavor, count = held(workload)
            used[flavor] += count
            used_by[workload["metadata"]["labels"][naming.TEAM], flavor] += count
            assert count == nodes[run_id], f"{run_id} is admitted with {count} of its nodes"
        finished = condition(workload, "Finished")
        ended += finished is not None and finished["status"] == "True"
    sizes = {p.name: p.max for p in fleet.config.pools}
    assert all(used[name] <= size for name, size in sizes.items()), f"{used} of {sizes}"
    for (team, flavor), count in used_by.items():
        assert count <= fleet.platform.teams[team].most_nodes[flavor], (
            f"{team}: {count} of {flavor}"
        )
    return ended


def test_admitted_runs_never_exceed_pool_sizes_or_team_limits(cluster: Cluster, full: bool) -> None:
    runs = RUNS_FULL if full else RUNS
    print(f"QUEUEING_SEED={SEED}")
    rng = random.Random(SEED)
    with _fleet(cluster, rng).deployed() as fleet:
        nodes, kept = _submit(fleet, rng, runs)
        deadline = time.monotonic() + SECONDS_A_RUN * runs
        changed = time.monotonic()
        ended = observations = 0
        expected = len(nodes) - len(kept)
        while ended < expected:
            assert time.monotonic() < deadline, f"seed {SEED}: {ended} of {expected} have ended"
            now, observations = _observe(fleet, nodes), observations + 1
            if now > ended:
                ended, changed = now, time.monotonic()
            elif time.monotonic() - changed > _QUIET_S:
                # Runs that never end keep the others waiting: stop them.
                for run_id, team in kept.items():
                    fleet.stop(team, run_id)
                kept, changed = {}, time.monotonic()
        assert observations > 1
        print(f"{observations} observations of {expected} runs of {sum(nodes.values())} nodes")
