"""A recorded trace of spot capacity, executed on the real Kueue by `spot steer`."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from infra.domain import naming
from sandbox import paths
from sandbox.node.api import node_path
from tests.sandbox import test_steering
from tests.sandbox.test_steering import BOUGHT, HOUR_S, RICH, SPOT, Steered
from training.spot import traces

pytestmark = [pytest.mark.sandbox, pytest.mark.full_only]

steered = test_steering.steered

OUTAGES = 4
"""Each takes a minute: the time-out of a gang that gets no nodes. Clocks are put forward between them."""
USD = {SPOT: 10.0, BOUGHT: 30.0}
FOLDER = "SPOT_TRACES"
"""Variable: folder of recorded traces; default: the made ones of bench/traces."""


def _changes(chance: random.Random) -> tuple[str, list[tuple[float, bool]]]:
    """The name of a trace, and when the gang's capacity goes and comes, in seconds from its first tick with it."""
    found = traces.load(Path(os.environ.get(FOLDER, paths.PROJECT / "bench/traces")))
    chance.shuffle(found)
    for trace in found:
        there = next(iter(trace.zones.values()))
        first = there.index(True) if True in there else len(there)
        changes = [
            ((tick - first) * float(trace.gap_s), there[tick])
            for tick in range(first + 1, len(there))
            if there[tick] is not there[tick - 1]
        ]
        if len(changes) >= 2 * OUTAGES:
            return trace.name, changes[: 2 * OUTAGES]
    raise AssertionError(f"no trace has {OUTAGES} outages")


def _settle(steered: Steered, run: str, seconds: float) -> str:
    """Put the clock to a time of the trace, and return the pool in which the gang runs after its decision."""
    steered.ahead_s = seconds - time.time()
    looks = 0

    def settled() -> str:
        nonlocal looks
        looks += 1
        allowed, pool = steered.allowed(run), steered.pool(run)
        return pool if looks > 2 and (allowed is None or pool in allowed) else ""

    return steered.until(settled, "it runs where it may")


def test_a_gang_follows_a_trace_and_never_stands_still(steered: Steered) -> None:
    seed = random.randrange(10**6)
    name, changes = _changes(random.Random(seed))
    print(f"seed {seed}: {name}, {changes}")
    fleet, begun = steered.fleet, time.time()
    run = fleet.start(RICH, "trace", [SPOT, BOUGHT], nodes=2, hold=False, keeps_running=True)
    assert _settle(steered, run, begun) == SPOT
    usd, since, places = 0.0, 0.0, [SPOT]
    for number, (at, there) in enumerate(changes):
        # What it does by itself until then, as when a hold-off has passed.
        places.append(_settle(steered, run, begun + at - 1))
        usd += USD[places[-1]] * (at - since) / HOUR_S
        since = at
        if there:
            for fresh in range(4):
                steered.give(f"{SPOT}-again-{number}-{fresh}")
        else:
            selector = f"{naming.POOL}={SPOT}"
            nodes = fleet.client.get(node_path(), labelSelector=selector)["items"]
            names = [node["metadata"]["name"] for node in nodes]
            for one in names:
                steered.announce(one)
            for one in names:
                steered.take(run, one)
        places.append(_settle(steered, run, begun + at))
        assert there or places[-1] == BOUGHT, places
    always = USD[BOUGHT] * since / HOUR_S
    print(
        f"{usd:.0f} USD, {always:.0f} on demand; moves: {steered.remembered(run).moves}; {places}"
    )
    assert usd <= always
    assert BOUGHT in places
    fleet.stop_all()
