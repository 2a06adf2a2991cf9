"""What the steering of runs remembers, look by look."""

from __future__ import annotations

from typing import Any

import pytest

from ops.steer import memory
from ops.steer.memory import Memory, Seen

NOW = 1_800_000_000.0


def after(*looks: tuple[Seen, set[str]], old: Memory | None = None) -> Memory:
    """The memory after looks a minute apart, each with the nodes that were lost by then."""
    found = old or Memory()
    for number, (seen, gone) in enumerate(looks):
        found = memory.update(found, NOW + 60 * number, seen, gone)
    return found


def running(pool: str, *nodes: str, since: float = NOW, **counts: Any) -> Seen:
    return Seen(created=NOW, pool=pool, nodes=nodes, ready=since, **counts)


def starting(pool: str, **counts: Any) -> Seen:
    return Seen(created=NOW, pool=pool, **counts)


def waiting(**counts: Any) -> Seen:
    return Seen(created=NOW, **counts)


def test_a_lost_node_is_one_loss_even_if_kueue_evicts_the_gang_for_it() -> None:
    found = after(
        (running("spot", "a", "b"), set()),
        (starting("spot"), {"a"}),
        (waiting(recoveries=1), {"a"}),
        (running("spot", "b", "c", since=NOW + 170, recoveries=1), {"a"}),
    )
    assert found.history.losses == ((NOW + 60, "spot"),)
    assert found.history.restart_s == 110 and found.down is None


def test_a_time_out_without_a_lost_node_is_a_loss_too() -> None:
    found = after((running("spot", "a"), set()), (waiting(recoveries=1), set()))
    assert found.history.losses == ((NOW + 60, "spot"),)
    assert found.queued == NOW + 60


def test_a_group_that_waits_for_others_says_nothing_of_its_pool() -> None:
    group = {"of_group": True}
    waits = after(
        (running("spot", "a", **group), set()),
        (waiting(recoveries=1, **group), set()),
        (starting("spot", recoveries=1, **group), set()),
    )
    assert not waits.history.losses
    alone = after(
        (Seen(created=NOW, pool="spot", nodes=("a",), of_group=True), set()),
        (waiting(starts=1, **group), set()),
    )
    assert not alone.history.empty
    # Without a node for it, the pool was empty; a node that was lost was one.
    nothing = after((starting("spot", **group), set()), (waiting(starts=1, **group), set()))
    assert nothing.history.empty["spot"].times == 1
    lost = after((running("spot", "a", **group), set()), (waiting(**group), {"a"}))
    assert len(lost.history.losses) == 1


def test_a_start_that_timed_out_makes_the_pool_empty_until_it_runs_there() -> None:
    looks = [(starting("spot"), set[str]()), (waiting(starts=1), set[str]())]
    found = after(*looks)
    assert found.history.empty["spot"].times == 1 and not found.history.losses
    again = after((starting("spot", starts=1), set()), (waiting(starts=2), set()), old=found)
    assert again.history.empty["spot"].times == 2
    assert not after((running("spot", "a", starts=2), set()), old=again).history.empty


def test_a_preempted_run_and_one_that_is_moved_lose_nothing() -> None:
    assert not after((running("spot", "a"), set()), (waiting(), set())).history.losses
    moving = Memory(pool="spot", nodes=("a",), moving=True)
    assert not after((waiting(), {"a"}), old=moving).history.losses


def test_nodes_that_it_no_longer_holds_may_go() -> None:
    found = after(
        (running("spot", "a"), set()), (waiting(), set()), (waiting(), {"a"}), (waiting(), {"a"})
    )
    assert not found.history.losses


def test_it_survives_a_restart_and_whatever_an_annotation_says() -> None:
    found = after((running("spot", "a"), set()), (starting("spot"), {"a"}))
    assert memory.parse(found.text()) == found


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "x", '{"history": {}}', '{"a": 1}'])
def test_an_annotation_that_is_not_ours_is_a_new_run(text: str) -> None:
    assert memory.parse(text) == Memory()
