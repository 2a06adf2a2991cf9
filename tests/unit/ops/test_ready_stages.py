"""The whole readiness check: where it stops, what it deletes, and its lease."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ops.cluster import ClusterError, UnreachableError
from ops.lease import LEASES, Lease
from ops.ready import command, result_store, stack_facts
from ops.ready.jobs import Jobs, leftover_jobs
from ops.ready.outcome import Check, Outcome, StageResult, failed, passed, skipped
from ops.ready.stages import STAGES, Stage, run_stages
from tests.unit.ops.ready_cluster import (
    Clock,
    LiveFake,
    facts,
    job_result,
    kind_of,
    make_session,
    pool,
    template,
    whole,
)
from tests.unit.snapshots import Text

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
NAMES = [stage.name for stage in STAGES]


class Heard:
    """A teller that remembers."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def stage_started(self, number: int, stage: Stage) -> None:
        assert number == len(self.stages) + 1
        self.stages.append(stage.name)

    def found(self, check: Check) -> None:
        assert check.seen


def _climb(cluster: LiveFake, **options: Any) -> list[StageResult]:
    return list(run_stages(make_session(cluster), Heard(), **options))


def _outcomes(found: list[StageResult]) -> dict[str, str]:
    return {one.stage: one.outcome.value for one in found}


def test_all_stages_pass_on_a_healthy_stack_and_leave_no_jobs() -> None:
    cluster = whole()
    assert _outcomes(_climb(cluster)) == dict.fromkeys(NAMES, "passed") | {"queueing": "skipped"}
    assert cluster.jobs() == []
    assert len(cluster.created) == 5


def test_the_check_stops_at_the_first_failed_stage() -> None:
    bad = {"validation": "collective", "ok": False, "cause": "MTU differs", "remedy": "even it"}
    cluster = whole(job_result("collective", bad))
    found = _climb(cluster)
    assert _outcomes(found)["collective"] == "failed"
    assert set(list(_outcomes(found).values())[4:]) == {"not reached"}
    assert [kind_of(job) for job in cluster.created] == ["smoke", "collective"]


def test_until_ends_the_check_after_the_named_stage() -> None:
    assert list(_outcomes(_climb(whole(), until="homogeneous"))) == [
        "capacity",
        "gpu-smoke",
        "homogeneous",
    ]


def test_dry_run_starts_no_jobs_and_reports_it(text: Text) -> None:
    cluster = whole()
    found = _climb(cluster, start=False)
    assert found[0].outcome is Outcome.PASSED
    text({one.checks[0].seen for one in found[1:]})
    assert cluster.created == []


def test_an_interrupt_during_a_job_deletes_it() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    cluster = whole(lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        list(run_stages(make_session(cluster, Clock(interrupt)), Heard()))
    assert cluster.deleted == ["smoke-spot-c1"]


def test_the_next_check_finds_jobs_of_a_dead_one(text: Text) -> None:
    cluster = whole(lambda *_: None)
    jobs = Jobs(cluster, "dead", Clock().poller(), lambda _: None)  # type: ignore[arg-type]
    jobs.start(template("smoke", "spot"))
    found = leftover_jobs(cluster)  # type: ignore[arg-type]
    text([one.reference for one in found])


# One check at a time.


def _lease(cluster: LiveFake, clock: Clock, who: str) -> Lease:
    return command.make_lease(cluster, who, lambda: clock.now)  # type: ignore[arg-type]


def _acquire(lease: Lease, clock: Clock) -> None:
    command.acquire(lease, clock.poller(2 * command.STALE_S), print)


def test_a_second_check_is_rejected_while_the_first_holds_the_lease() -> None:
    cluster = LiveFake()
    clock = Clock(lambda: command.renew(first))
    first, second = (_lease(cluster, clock, who) for who in ("ann", "bob"))
    _acquire(first, clock)
    with pytest.raises(ClusterError, match=r"^lease/ready .*\bann\b.*retry") as refused:
        _acquire(second, clock)
    assert "\n" not in str(refused.value)
    first.release()
    _acquire(second, Clock())


def test_a_stale_lease_is_taken_over_and_its_holder_cannot_renew() -> None:
    cluster, clock = LiveFake(), Clock()
    dead, next_one = (_lease(cluster, clock, who) for who in ("ann", "bob"))
    _acquire(dead, clock)
    _acquire(next_one, clock)
    assert clock.now >= command.STALE_S
    with pytest.raises(ClusterError, match=r"^lease/ready ") as lost:
        command.renew(dead)
    # A poller goes on after these.
    assert not isinstance(lost.value, UnreachableError)
    dead.release()
    lease = cluster.get(LEASES, "ready", stack_facts.NAMESPACE)
    assert lease and lease["spec"]["holderIdentity"] == "bob"


# Stored results.


def _found(*checks: Check, stage: str = "gpu-smoke") -> StageResult:
    return StageResult(stage=stage, title="", checks=checks)


def test_results_are_stored_by_subject_and_read_back() -> None:
    cluster = LiveFake()
    first = result_store.merge({}, [_found(passed("pool a", "good", driver="1"))], NOW, {"pool a"})
    for _ in range(2):
        result_store.write(cluster, first)  # type: ignore[arg-type]
    read = result_store.read(cluster)  # type: ignore[arg-type]
    assert read["gpu-smoke"]["pool a"].facts == {"driver": "1"}
    assert read == first


def test_a_skip_keeps_the_older_result_and_removed_pools_are_dropped() -> None:
    before = [_found(passed("pool a", "good"), failed("pool b", "bad", "do"))]
    known = result_store.merge({}, before, NOW, {"pool a", "pool b"})
    later = result_store.merge(known, [_found(skipped("pool a", "asleep"))], NOW, {"pool a"})
    assert later == {"gpu-smoke": {"pool a": known["gpu-smoke"]["pool a"]}}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"gpu-smoke": {"pool a": {}}}'])
def test_unreadable_results_are_ignored(text: str) -> None:
    cluster = LiveFake()
    metadata = {"name": result_store.NAME, "namespace": stack_facts.NAMESPACE}
    cluster.put({"kind": "ConfigMap", "metadata": metadata, "data": {result_store.KEY: text}})
    assert result_store.read(cluster) == {}  # type: ignore[arg-type]


def test_stack_facts_errors_name_missing_or_misspelled_keys() -> None:
    with pytest.raises(ClusterError, match=r"^configmap/trainyard-stack .*`validation`"):
        stack_facts.read(LiveFake())  # type: ignore[arg-type]
    broken = facts()
    broken["data"][stack_facts.KEY] = "{}"
    with pytest.raises(ClusterError, match=r"stack.json .*KeyError\('stack'\)"):
        stack_facts.read(LiveFake(broken))  # type: ignore[arg-type]
    of = stack_facts.read(LiveFake(facts(pool("spot"))))  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match=r"^--pool: got 'sport'; .*spot"):
        of.select_pools(("sport",))
    with pytest.raises(ClusterError, match=r"^--team: got 'x'; .*research, serving"):
        of.team("x")
