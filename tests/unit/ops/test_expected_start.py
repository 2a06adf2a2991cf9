"""When a waiting run is expected to start, from snapshots of an imaginary cohort."""

from __future__ import annotations

from typing import Any

from ops.objects import Json
from ops.runs.expected_start import ExpectedStart, expected_start
from ops.runs.progress import Progress
from tests.unit.ops.run_fixtures import cluster_queue, condition, snapshot, workload

ADMITTED = (condition("QuotaReserved"), condition("Admitted"))


def holder(run_id: str, nodes: int, limit_s: int | None = None, **more: Any) -> Json:
    """A run of the team that was admitted a minute ago and holds 8 GPUs a node of spot."""
    found = workload(*ADMITTED, run_id=run_id, uid=run_id, nodes=nodes, flavor="spot", **more)
    if limit_s:
        found["spec"]["maximumExecutionTimeSeconds"] = limit_s
    return found


def waiting(run_id: str, nodes: int, age_s: float, limit_s: int | None = None) -> Json:
    found = workload(run_id=run_id, uid=run_id, nodes=nodes, age_s=age_s)
    if limit_s:
        found["spec"]["maximumExecutionTimeSeconds"] = limit_s
    return found


def left(seconds: float) -> Progress:
    return Progress(step=0, steps=int(seconds), steps_per_s=1.0)


def expected(
    *others: Json, mine: Json | None = None, preemption: str = "LowerPriority", **known: Progress
) -> ExpectedStart:
    """The run needs 16 GPUs; the team's queue has 16 of spot and lends nothing."""
    own = mine or workload()
    used = sum(
        8 * one["spec"]["podSets"][0]["count"] for one in others if "admission" in one["status"]
    )
    queue = cluster_queue(spot=16, used={"spot": used})
    queue["spec"]["preemption"] = {"withinClusterQueue": preemption}
    found = expected_start(
        snapshot(
            workload=own,
            workloads=[own, *others],
            cluster_queue=queue,
            cluster_queues=[queue],
        ),
        {name.replace("_", "-"): one for name, one in known.items()},
    )
    assert found is not None
    return found


def test_a_run_waits_for_the_steps_that_a_run_of_its_team_has_left() -> None:
    found = expected(holder("busy", 2), busy=left(3600))
    assert (found.soonest_s, found.latest_s) == (3600, 3600 * 1.25 + 120)
    assert found.text == "in 60 min to 77 min: when busy has ended"


def test_a_time_limit_bounds_a_run_whose_progress_is_not_known() -> None:
    found = expected(holder("busy", 2, limit_s=7260))
    assert (found.soonest_s, found.latest_s) == (0, 7200)
    assert found.text == "within 2 h: when busy has ended"


def test_the_earlier_of_limit_and_steps_counts() -> None:
    found = expected(holder("busy", 2, limit_s=1860), busy=left(3600))
    assert (found.soonest_s, found.latest_s) == (1800, 1800)


def test_without_limit_and_progress_nothing_is_claimed() -> None:
    found = expected(holder("busy", 2))
    assert found.latest_s is None
    assert found.text.startswith("not known: no end is known of busy")


def test_all_runs_that_it_needs_to_end_are_counted_and_no_others() -> None:
    found = expected(holder("first", 1), holder("second", 1), first=left(100), second=left(900))
    assert found.soonest_s == 900
    assert found.why == "when first, second has ended"
    small = workload(nodes=1)
    one = expected(
        holder("first", 1), holder("second", 1), mine=small, first=left(100), second=left(900)
    )
    assert (one.soonest_s, one.latest_s) == (100, 245)


def test_a_run_before_it_takes_what_becomes_free_first() -> None:
    ahead = waiting("ahead", 2, age_s=9000, limit_s=7200)
    found = expected(holder("busy", 2), ahead, busy=left(3600))
    assert found.soonest_s == 3600  # it may pass, if the other cannot start
    assert found.latest_s == 3600 * 1.25 + 120 + 7200
    behind = waiting("behind", 2, age_s=1, limit_s=7200)
    assert expected(holder("busy", 2), behind, busy=left(3600)).latest_s == 3600 * 1.25 + 120


def test_a_run_before_it_without_a_limit_has_no_latest_time() -> None:
    found = expected(holder("busy", 2), waiting("ahead", 2, age_s=9000), busy=left(3600))
    assert found.latest_s is None
    assert found.text.startswith(
        "not before 60 min from now; no latest time: no end is known of ahead"
    )


def test_runs_with_a_lower_priority_give_way() -> None:
    found = expected(holder("low", 2, priority=1), low=left(3600))
    assert (found.soonest_s, found.latest_s) == (0, 120)
    assert found.text == "within 2 min: when low has given way: lower priority"
    limited = holder("low", 2, limit_s=3660, priority=1)
    template = limited["spec"]["podSets"][0].setdefault("template", {}).setdefault("spec", {})
    template["terminationGracePeriodSeconds"] = 300
    assert expected(limited).latest_s == 300
    kept = expected(limited, preemption="Never")
    assert (kept.soonest_s, kept.latest_s, kept.why) == (0, 3600, "when low has ended")


def test_room_in_the_guarantee_means_now() -> None:
    found = expected()
    assert (found.soonest_s, found.latest_s) == (0, 0)
    assert found.text.startswith("now: the team's guarantee has room")


def test_gpus_that_other_teams_lend_have_no_latest_time() -> None:
    large = workload(nodes=3)
    own = cluster_queue(spot=16)
    other = cluster_queue("production", spot=16, used={"spot": 16})
    found = expected_start(
        snapshot(workload=large, cluster_queue=own, cluster_queues=[own, other]), {}
    )
    assert found is not None and found.latest_s is None
    assert "which other teams lend" in found.text


def test_what_is_not_readable_or_stopped_is_not_known() -> None:
    waits = workload()
    hidden = expected_start(snapshot(workload=waits, cluster_queue=None), {})
    assert hidden is not None and hidden.text.startswith("not known: the team's ClusterQueue")
    stopped = cluster_queue(spot=16, stop="Hold")
    held = expected_start(snapshot(workload=waits, cluster_queue=stopped), {})
    assert held is not None and held.text == "not known: its queue is stopped"


def test_more_than_the_queue_can_have_is_said() -> None:
    found = expected(mine=workload(nodes=9))
    assert found.text == "not known: it requests more GPUs than its queue can ever have"


def test_a_run_that_does_not_wait_has_none() -> None:
    admitted = workload(*ADMITTED, flavor="spot")
    assert expected_start(snapshot(workload=admitted), {}) is None
    assert expected_start(snapshot(workload=None), {}) is None
