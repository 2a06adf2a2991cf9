"""Quota on the real Kueue: borrowing, lending, reclaiming, cost limits; gangs are evicted as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until
from tests.sandbox.queue_kit import (
    Fleet,
    condition,
    evicted_because,
    has_topology,
    held,
    pool,
    team_of,
)

pytestmark = [pytest.mark.sandbox, pytest.mark.long(51)]

A, B, PRODUCTION, STUCK = "qa", "qb", "qp", "qs"
LIMITED, LENT, OWNED, SHARED = "q-limited", "q-lent", "q-owned", "q-shared"
DEAR, RACKS, SLOW = "q-dear", "q-racks", "qs-slow"
BLOCK, GROWN, MIXED = "qm-block", "qm-grown", "qm"

_NOT_READY_S = 180.0
"""Kueue waits 45 s for the sandbox's gangs; the rest is for a busy machine."""


@pytest.fixture(scope="module")
def unready(cluster: Cluster) -> Iterator[tuple[Fleet, str]]:
    """A gang that never becomes ready, on its own nodes; its timeout passes during the other tests."""
    with Fleet(cluster, "queueing-slow", [pool(SLOW, 2)], [team_of(STUCK)]).deployed() as slow:
        stuck = slow.start(STUCK, "stuck", [SLOW], nodes=2)
        slow.await_split({stuck}, set())
        yield slow, stuck


@pytest.fixture(scope="module")
def fleet(cluster: Cluster, unready: tuple[Fleet, str]) -> Iterator[Fleet]:
    """A fleet of six pools, so that tests do not share nodes."""
    pools = [
        *(pool(LIMITED, 4), pool(LENT, 2), pool(OWNED, 3), pool(SHARED, 4)),
        *(pool(DEAR, 4, "on-demand"), pool(RACKS, 8)),
    ]
    teams = [
        team_of(
            A,
            guaranteed={LIMITED: 1, LENT: 2, OWNED: 3},
            borrowing={LIMITED: 1},
            lending={LENT: 1},
            onDemandUsdPerHour=44,
        ),
        team_of(B),
        team_of(PRODUCTION, "production"),
    ]
    with Fleet(cluster, "queueing", pools, teams).deployed() as deployed:
        yield deployed


@pytest.fixture
def runs(fleet: Fleet) -> Iterator[Fleet]:
    """The fleet, empty again after the test."""
    yield fleet
    fleet.stop_all()


def singles(fleet: Fleet, team: str, count: int, *pools: str) -> list[str]:
    """So many runs of one node."""
    return [fleet.start(team, f"{team}-{n}", pools) for n in range(count)]


def test_a_team_borrows_up_to_its_limit_and_not_beyond(runs: Fleet) -> None:
    first, second = singles(runs, A, 2, LIMITED)
    runs.await_split({first, second}, set())
    third = runs.start(A, "beyond", [LIMITED])
    runs.await_split({first, second}, {third})
    # Two nodes are idle, and one without such a limit may have them.
    others = singles(runs, B, 2, LIMITED)
    runs.await_split({first, second, *others}, {third})


def test_team_lends_up_to_its_limit_and_reclaims_lent_quota(runs: Fleet) -> None:
    borrowed = runs.start(B, "borrowed", [LENT])
    runs.await_split({borrowed}, set())
    refused = runs.start(B, "refused", [LENT])
    runs.await_split({borrowed}, {refused})
    kept = runs.start(A, "kept", [LENT])
    runs.await_split({borrowed, kept}, {refused})
    back = runs.start(A, "back", [LENT])
    runs.await_split({kept, back}, {refused, borrowed})
    assert evicted_because(runs.workloads()[borrowed]).startswith("InCohort")


def test_owner_preempts_a_borrowing_gang_as_a_whole(runs: Fleet) -> None:
    gang = runs.start(B, "gang", [OWNED], nodes=3)
    until(lambda: len(runs.pods(gang)) == 3, "the borrower's three pods")
    owner = runs.start(A, "owner", [OWNED])
    runs.await_split({owner}, {gang})
    # Two nodes are idle, and none of the gang's pods is on them.
    until(lambda: not runs.pods(gang), "all of the gang's pods are gone")
    until(lambda: len(runs.pods(owner)) == 1, "the owner's pod")
    runs.stop(A, owner)
    runs.await_split({gang}, set())
    until(lambda: len(runs.pods(gang)) == 3, "the gang is back as a whole")


def test_higher_priority_gang_of_a_team_is_admitted_first(runs: Fleet) -> None:
    low = runs.start(A, "low", [OWNED], nodes=3, priority="best-effort-training")
    runs.await_split({low}, set())
    alike = runs.start(A, "alike", [OWNED], priority="best-effort-training")
    runs.await_split({low}, {alike})
    urgent = runs.start(A, "urgent", [OWNED], nodes=2)
    runs.await_split({urgent, alike}, {low})
    assert evicted_because(runs.workloads()[low]) == "InClusterQueue"


def test_borrowers_of_equal_weight_get_equal_shares(runs: Fleet) -> None:
    early = singles(runs, A, 4, SHARED)
    runs.await_split(set(early), set())
    late = singles(runs, B, 3, SHARED)

    def even() -> bool:
        running = runs.admitted()
        return len(running & {*early}) == 2 and len(running & {*late}) == 2

    until(even, "two nodes each")
    until(lambda: len(runs.waiting()) == 3, "the other three wait")
    assert even()


def test_fair_sharing_does_not_preempt_production_for_research(runs: Fleet) -> None:
    loans = singles(runs, PRODUCTION, 4, SHARED)
    runs.await_split(set(loans), set())
    hopeful = runs.start(A, "hopeful", [SHARED])
    runs.await_split(set(loans), {hopeful})
    # Production, by its weight, may do so.
    runs.stop(PRODUCTION, *loans)
    runs.await_split({hopeful}, set())
    more = singles(runs, A, 3, SHARED)
    runs.await_split({hopeful, *more}, set())
    back = runs.start(PRODUCTION, "back", [SHARED])
    until(lambda: back in runs.admitted(), "production has a node")


def test_research_falls_back_to_on_demand_up_to_its_limit(runs: Fleet) -> None:
    cheap = singles(runs, A, 4, SHARED, DEAR)
    runs.await_split(set(cheap), set())
    assert {held(w)[0] for w in runs.workloads().values()} == {SHARED}
    paid = [runs.start(A, f"paid-{n}", [SHARED, DEAR]) for n in range(2)]
    runs.await_split({*cheap, *paid}, set())
    assert {held(runs.workloads()[run_id])[0] for run_id in paid} == {DEAR}
    beyond = runs.start(A, "beyond", [SHARED, DEAR])
    runs.await_split({*cheap, *paid}, {beyond})
    # Two on-demand nodes are idle: a team without a cap gets them.
    rich = singles(runs, B, 2, DEAR)
    runs.await_split({*cheap, *paid, *rich}, {beyond})


def test_gang_is_placed_in_one_rack_if_it_fits(runs: Fleet) -> None:
    first = runs.start(A, "first", [RACKS])
    runs.await_split({first}, set())
    gang = runs.start(A, "gang", [RACKS], nodes=4)
    runs.await_split({first, gang}, set())
    assert len(runs.racks(gang, 4)) == 1
    # A gang that fits no rack spans several: the topology is only preferred.
    wide = runs.start(A, "wide", [RACKS], nodes=3)
    runs.await_split({first, gang, wide}, set())


@pytest.fixture(scope="module")
def mixed(cluster: Cluster) -> Iterator[Fleet]:
    """A pool of eight H100 nodes with a topology beside one without, as Karpenter's would be."""
    pools = [
        pool(BLOCK, 8, instanceTypes=["p5.48xlarge"], topology=True),
        pool(GROWN, 4, topology=False),
    ]
    with Fleet(cluster, "queueing-mixed", pools, [team_of(MIXED)]).deployed() as deployed:
        yield deployed


def test_topology_is_a_property_of_a_pool(mixed: Fleet) -> None:
    first = mixed.start(MIXED, "first", (), gpu_model="h100")
    gang = mixed.start(MIXED, "gang", (), nodes=4, gpu_model="h100")
    anywhere = mixed.start(MIXED, "anywhere", (), nodes=2)
    # It may use both pools, but not be placed in both ways: it waits for the pool without a topology.
    third = mixed.start(MIXED, "third", (), nodes=3)
    mixed.await_split({first, gang, anywhere}, {third})
    workloads = mixed.workloads()
    assert {held(workloads[one]) for one in (first, gang)} == {(BLOCK, 1), (BLOCK, 4)}
    assert held(workloads[anywhere]) == (GROWN, 2)
    assert has_topology(workloads[gang]) and not has_topology(workloads[anywhere])
    assert len(mixed.racks(gang, 4)) == 1


def test_pool_with_a_topology_refuses_a_run_that_requests_none(mixed: Fleet) -> None:
    mixed.stop_all()
    run = mixed.start(MIXED, "bound", [BLOCK], nodes=2)
    mixed.await_split(set(), {run})
    reserved = condition(mixed.workloads()[run], "QuotaReserved")
    assert reserved and f'"{BLOCK}" supports only TopologyAwareScheduling' in reserved["message"]


def test_gang_that_never_becomes_ready_is_requeued(
    unready: tuple[Fleet, str],
) -> None:
    slow, stuck = unready

    def eviction_reasons() -> list[str]:
        stats = slow.workloads()[stuck]["status"].get("schedulingStats", {})
        return [eviction["reason"] for eviction in stats.get("evictions", [])]

    # By now it may be on its second try, which clears the condition but not the record.
    assert until(eviction_reasons, "Kueue evicts the gang", _NOT_READY_S) == ["PodsReadyTimeout"]
    until(lambda: stuck in slow.admitted(), "the gang is admitted again")
