"""Curves, attempts and the division of a run's time, by the metrics of its attempts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ops.ledger.model import Bucket, Hold, Node, Phase
from ops.metrics import History
from ops.runs.progress import Point
from ops.ui import curves, run_view, spending
from ops.ui.recent import STALE_S, Recent
from ops.watched import RELIST_MAX_S, RELIST_S, fresh_s

RUN = "hello-v1-aaaaaaaa"


def history(*points: tuple[float, float]) -> list[History]:
    return [History(labels={"run_id": RUN}, points=points)]


def two_attempts() -> curves.Measured:
    """Ten steps of a second from 100 on, then from step 8 on again from 130 on."""
    first = [(100.0 + n, float(n)) for n in range(1, 11)]
    second = [(130.0 + n, float(7 + n)) for n in range(1, 6)]
    mine = [*first, *second]
    own = [*first, *((time, step - 7) for time, step in second)]
    return curves.parse(
        RUN,
        {
            "step": history(*mine),
            "loss": history(*((time, 6 - step / 10) for time, step in mine)),
            "steps": history(*own),
            "step_s": history(*own),
            "attempt": history(*((t, 1.0) for t, _ in first), *((t, 2.0) for t, _ in second)),
            "checkpoint": history(*((t, 5.0 if step < 10 else 10.0) for t, step in mine[5:])),
        },
    )


def test_attempts_follow_from_the_counters() -> None:
    found = two_attempts()
    assert [(p.attempt, p.start, p.end, p.steps, p.first_step) for p in found.phases] == [
        (1, 100.0, 110.0, 10, 1),
        (2, 130.0, 135.0, 5, 8),
    ]
    assert [step for _, step in found.saves] == [5, 10]
    assert found.values()["loss"][0] == 5.9


def test_an_interruption_costs_its_gap_and_the_repeated_steps() -> None:
    phases = [
        Phase(**{**vars(one), "ended": "notice" if one.attempt == 1 else ""})
        for one in two_attempts().phases
    ]
    found = spending.by_wall_clock(RUN, phases, 95.0, 135.0, None, 3600.0)
    seconds = {(part.bucket, part.cause): part.seconds for part in found.parts}
    assert seconds == pytest.approx(
        {
            (Bucket.PRODUCTIVE.value, ""): 12.0,
            (Bucket.REPLAYED.value, "notice"): 3.0,
            (Bucket.STARTING.value, ""): 5.0,
            (Bucket.STARTING.value, "notice"): 20.0,
        }
    )
    assert found.usd == pytest.approx(40.0)
    assert found.interrupted_usd == pytest.approx(23.0)
    assert found.goodput == pytest.approx(12 / 40)


def test_time_in_the_queue_between_attempts_costs_nothing() -> None:
    found = spending.by_wall_clock(RUN, two_attempts().phases, 100.0, 135.0, 125.0, 3600.0)
    assert found.usd == pytest.approx(20.0)


def test_the_last_attempts_training_follows_from_its_log() -> None:
    moments = [Point(time=1000.0 + n, step=110 + n) for n in (0, 10, 20)]
    [first] = run_view.phases_of_log(RUN, 1, moments)
    assert (first.start, first.end, first.first_step, first.steps) == (890.0, 1020.0, 1, 130)
    [later] = run_view.phases_of_log(RUN, 2, moments)
    assert (later.start, later.end, later.first_step) == (990.0, 1020.0, 0)
    [single] = run_view.phases_of_log(RUN, 1, moments[:1])
    assert (single.start, single.end) == (1000.0, 1000.0)
    assert run_view.phases_of_log(RUN, 1, []) == []


def test_a_run_costs_the_nodes_that_it_holds() -> None:
    nodes = [
        Node(uid=f"n{n}", pool="spot", start=0.0, usd_per_hour=price)
        for n, price in enumerate((2.0, 4.0, None))
    ]
    holds = [
        Hold(uid=f"p{n}", node=f"n{n}", run=run, team="t", start=0.0)
        for n, run in enumerate((RUN, RUN, "other"))
    ]
    found = spending.spending_by_run([*nodes, *holds], 3600.0)
    assert (found[RUN].usd, found[RUN].usd_per_hour, found[RUN].hours) == (6.0, 6.0, 2.0)
    assert (found["other"].usd, found["other"].usd_per_hour) == (None, None)
    alone = spending.facts_of_run([*nodes, *holds], RUN)
    assert spending.spending_by_run(alone, 3600.0)[RUN] == found[RUN]


def test_old_answers_are_read_again() -> None:
    now = [0.0]
    reads: list[float] = []

    def read() -> Sequence[float]:
        reads.append(now[0])
        return [now[0]]

    recent: Recent[Sequence[float]] = Recent(lambda: now[0])
    assert recent.get("a", read) == [0.0]
    now[0] = RELIST_S / 2
    assert (recent.get("a", read), len(reads)) == ([0.0], 1)
    now[0] = STALE_S + 1
    assert recent.get("a", read) == [STALE_S + 1]


def test_an_error_is_raised_until_the_next_reading_succeeds() -> None:
    now = [0.0]
    answers = iter([None, 5])

    def read() -> int:
        found = next(answers)
        if found is None:
            raise ValueError("gone")
        return found

    recent: Recent[int] = Recent(lambda: now[0])
    for _ in range(2):
        with pytest.raises(ValueError, match="gone"):
            recent.get("a", read)
    now[0] = RELIST_S + 1
    assert recent.get("a", read) == 5


def test_slow_answers_are_kept_longer() -> None:
    assert (fresh_s(0.01), fresh_s(60.0)) == (RELIST_S, RELIST_MAX_S)
    assert fresh_s(0.3) == pytest.approx(6.0)
