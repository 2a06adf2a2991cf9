"""The climb as a whole: where it stops, what it leaves behind, and who may climb at a time."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from infra.domain import naming
from ops import objects
from ops.cluster import ClusterError, ConflictError, _decode
from ops.objects import Json
from ops.ready import queueing, restore, result_store, stack_facts
from ops.ready.jobs import CRON_JOBS, Jobs, leftover_jobs
from ops.ready.lease import STALE_S, LeaseLock
from ops.ready.outcome import Check, Outcome, StageResult, failed, passed, skipped
from ops.ready.stages import STAGES, Stage, run_stages
from tests.unit.ops.ready_cluster import (
    Clock,
    LiveFake,
    ends,
    facts,
    kind_of,
    make_session,
    passes,
    pool,
    says,
    template,
    whole,
)
from tests.unit.snapshots import Text

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
NAMES = [stage.name for stage in STAGES]


class Heard:
    """A teller that remembers."""

    def __init__(self) -> None:
        self.rungs: list[str] = []

    def stage_started(self, number: int, stage: Stage) -> None:
        assert number == len(self.rungs) + 1
        self.rungs.append(stage.name)

    def found(self, check: Check) -> None:
        assert check.seen


def _climb(cluster: LiveFake, **options: Any) -> list[StageResult]:
    return list(run_stages(make_session(cluster), Heard(), **options))


def _outcomes(found: list[StageResult]) -> dict[str, str]:
    return {one.stage: one.outcome.value for one in found}


def test_all_rungs_pass_on_a_sound_stack_and_nothing_is_left() -> None:
    cluster = whole()
    assert _outcomes(_climb(cluster)) == dict.fromkeys(NAMES, "passed") | {"queueing": "skipped"}
    assert cluster.jobs() == []
    assert len(cluster.created) == 5


def test_the_climb_stops_at_the_first_rung_that_fails_and_starts_nothing_above_it() -> None:
    bad = {"validation": "collective", "ok": False, "cause": "MTU differs", "remedy": "even it"}
    cluster = whole(says("collective", bad))
    found = _climb(cluster)
    assert _outcomes(found)["collective"] == "failed"
    assert set(list(_outcomes(found).values())[4:]) == {"not reached"}
    assert [kind_of(job) for job in cluster.created] == ["smoke", "collective"]


def test_until_ends_the_climb_below_the_top() -> None:
    assert list(_outcomes(_climb(whole(), until="homogeneous"))) == [
        "capacity",
        "gpu-smoke",
        "homogeneous",
    ]


def test_looking_starts_nothing_and_says_so(text: Text) -> None:
    cluster = whole()
    found = _climb(cluster, start=False)
    assert found[0].outcome is Outcome.PASSED
    text({one.checks[0].seen for one in found[1:]})
    assert cluster.created == []


def test_an_interrupt_in_the_middle_of_a_job_leaves_nothing_behind() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    cluster = whole(lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        list(run_stages(make_session(cluster, Clock(interrupt)), Heard()))
    assert cluster.deleted == ["smoke-spot-c1"]


def test_a_job_is_noted_before_it_is_made_so_that_it_is_deleted_whatever_happens() -> None:
    def dies(_cluster: LiveFake, _job: Json) -> None:
        raise KeyboardInterrupt

    cluster = whole(dies)
    jobs = Jobs(cluster, "c1", Clock().poller(), lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        jobs.start(cluster.items(CRON_JOBS)[0])
    jobs.clear()
    assert cluster.jobs() == []


def test_the_next_call_finds_what_a_dead_climb_left(text: Text) -> None:
    cluster = whole(lambda *_: None)
    jobs = Jobs(cluster, "dead", Clock().poller(), lambda _: None)  # type: ignore[arg-type]
    jobs.start(template("smoke", "spot"))
    found = leftover_jobs(cluster)  # type: ignore[arg-type]
    text([one.reference for one in found])


# Restores.


def _restore(cluster: LiveFake, **changes: Any) -> list[Check]:
    return list(restore.check_teams(make_session(cluster, **changes)))


def _drill(team: str) -> Json:
    return template("restore-drill", namespace=f"team-{team}")


def test_production_teams_are_drilled_and_others_only_where_no_production_team_can_be() -> None:
    both = LiveFake(facts(), _drill("research"), _drill("serving"))
    assert [check.subject for check in _restore(both)] == ["team serving"]
    one = LiveFake(facts(), _drill("research"))
    assert [check.subject for check in _restore(one)] == ["team research"]


def test_where_production_has_saved_nothing_another_teams_checkpoints_tell() -> None:
    none = {"validation": "restore-drill", "ok": True, "runs": 0}
    cluster = LiveFake(
        facts(),
        _drill("research"),
        _drill("serving"),
        play=says("restore-drill", none, well=True),
    )
    checks = _restore(cluster)
    assert [check.subject for check in checks] == ["team serving", "team research"]


def test_a_named_team_is_the_one_that_is_drilled() -> None:
    cluster = LiveFake(facts(), _drill("research"), _drill("serving"))
    team = stack_facts.read(cluster).team("research")  # type: ignore[arg-type]
    assert [check.subject for check in _restore(cluster, team=team)] == ["team research"]


def test_no_drill_and_no_checkpoint_are_no_failures(text: Text) -> None:
    [check] = _restore(LiveFake(facts()))
    assert check.outcome is Outcome.SKIPPED and "no cronjob/restore-drill" in check.seen
    none = {"validation": "restore-drill", "ok": True, "runs": 0}
    [check] = _restore(
        LiveFake(facts(), _drill("serving"), play=says("restore-drill", none, well=True))
    )
    assert check.outcome == Outcome.SKIPPED
    text(check.seen)


def test_a_checkpoint_that_does_not_come_back_fails_with_its_run(text: Text) -> None:
    line = {"validation": "restore-drill", "ok": False, "cause": "hello-v1: shard 0 is corrupt"}
    [check] = _restore(LiveFake(facts(), _drill("serving"), play=says("restore-drill", line)))
    assert check.outcome is Outcome.FAILED
    text(check.seen)


# Queueing: the fake plays Kueue, one step at each rest.


class Kueue:
    """Admits one Job at a time, the higher first."""

    def __init__(self, *, room: int = 1, comes_back: bool = True) -> None:
        self.cluster = LiveFake(
            facts(), template(queueing.LOW), template(queueing.HIGH), play=self._queue
        )
        self._room = room
        self._comes_back = comes_back
        self._preempted = False

    @staticmethod
    def _queue(_cluster: LiveFake, job: Json) -> None:
        job["spec"]["suspend"] = True

    def step(self) -> None:
        """One look of the controller."""
        jobs = {kind_of(job): job for job in self.cluster.jobs()}
        low, high = jobs[queueing.LOW], jobs.get(queueing.HIGH)
        if high is None:
            low["spec"]["suspend"] = False
        elif high["spec"]["suspend"]:
            self._preempt(low, high)
        elif not high.get("status"):
            ends(self.cluster, high, [{"validation": queueing.HIGH, "ok": True}])
        elif self._comes_back:
            low["spec"]["suspend"] = False

    def _preempt(self, low: Json, high: Json) -> None:
        if self._room == 1:
            low["spec"]["suspend"] = True
            owner = {"name": objects.name(low), "uid": "u", "controller": True}
            evicted = {"reason": "Preempted", "underlyingCause": "InClusterQueue", "count": 1}
            self.cluster.put(
                {
                    "kind": "Workload",
                    "metadata": {
                        "name": "low",
                        "namespace": stack_facts.NAMESPACE,
                        "ownerReferences": [owner],
                    },
                    "status": {"schedulingStats": {"evictions": [evicted]}},
                }
            )
        if self._room:
            high["spec"]["suspend"] = False

    def look(self) -> Check:
        [check] = queueing.check_queue(make_session(self.cluster, Clock(self.step)))
        assert self.cluster.jobs() == []
        return check


def test_preemption_passes_once_the_lower_job_is_back(text: Text) -> None:
    check = Kueue().look()
    assert check.outcome is Outcome.PASSED
    text(check.seen)


@pytest.mark.parametrize(
    "kueue",
    [Kueue(room=2), Kueue(room=0), Kueue(comes_back=False)],
    ids=["both admitted", "not preempted", "not readmitted"],
)
def test_each_way_in_which_preemption_fails_is_told(kueue: Kueue, text: Text) -> None:
    check = kueue.look()
    assert check.outcome is Outcome.FAILED
    text(check.seen)


def test_other_schedulers_are_not_judged_by_kueues_rules(text: Text) -> None:
    [check] = queueing.check_queue(make_session(LiveFake(facts(scheduler="yunikorn"))))
    assert check.outcome is Outcome.SKIPPED
    text(check.seen)


def test_a_stack_whose_templates_are_missing_fails_by_name(text: Text) -> None:
    [check] = queueing.check_queue(make_session(LiveFake(facts(), template(queueing.LOW))))
    text(check.seen)


# One climb at a time.


def _turn(cluster: LiveFake, clock: Clock, who: str = "me") -> LeaseLock:
    return LeaseLock(cluster, who, lambda: clock.now)  # type: ignore[arg-type]


def test_a_second_climb_is_refused_while_the_first_one_lives() -> None:
    cluster, clock = LiveFake(), Clock()
    first = _turn(cluster, clock, "ann")
    first.acquire(clock.poller(STALE_S), print)

    def renews() -> None:
        clock.rest()
        first.renew_if_due()

    watching = Clock(renews)
    with pytest.raises(ClusterError, match=r"^lease/ready .*\bann\b"):
        _turn(cluster, clock, "bob").acquire(watching.poller(STALE_S), print)
    first.release()
    _turn(cluster, clock, "bob").acquire(clock.poller(STALE_S), print)


def test_the_turn_of_a_dead_climb_is_taken_over_and_the_dead_cannot_come_back() -> None:
    cluster, clock = LiveFake(), Clock()
    dead = _turn(cluster, clock, "ann")
    dead.acquire(clock.poller(STALE_S), print)
    _turn(cluster, clock, "bob").acquire(clock.poller(STALE_S), print)
    with pytest.raises(ClusterError, match=r"^lease/ready "):
        dead.renew_if_due()
    dead.release()
    assert ("Lease", stack_facts.NAMESPACE, "ready") in cluster.kept


# What is kept of climbs.


def _found(*checks: Check, stage: str = "gpu-smoke") -> StageResult:
    return StageResult(stage=stage, title="", checks=checks)


def test_results_are_kept_by_subject_and_survive_the_cluster() -> None:
    cluster = LiveFake()
    first = result_store.merge({}, [_found(passed("pool a", "good", driver="1"))], NOW, {"pool a"})
    for _ in range(2):
        result_store.write(cluster, first)  # type: ignore[arg-type]
    read = result_store.read(cluster)  # type: ignore[arg-type]
    assert read["gpu-smoke"]["pool a"].facts == {"driver": "1"}
    assert read == first


def test_a_skip_keeps_the_older_result_and_a_pool_that_is_gone_is_forgotten() -> None:
    before = [_found(passed("pool a", "good"), failed("pool b", "bad", "do"))]
    known = result_store.merge({}, before, NOW, {"pool a", "pool b"})
    later = result_store.merge(known, [_found(skipped("pool a", "asleep"))], NOW, {"pool a"})
    assert later == {"gpu-smoke": {"pool a": known["gpu-smoke"]["pool a"]}}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"gpu-smoke": {"pool a": {}}}'])
def test_results_that_cannot_be_understood_are_no_results(text: str) -> None:
    cluster = LiveFake()
    metadata = {"name": result_store.NAME, "namespace": stack_facts.NAMESPACE}
    cluster.put({"kind": "ConfigMap", "metadata": metadata, "data": {result_store.KEY: text}})
    assert result_store.read(cluster) == {}  # type: ignore[arg-type]


def test_a_stack_says_what_is_missing_or_misspelt() -> None:
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


def test_what_is_there_already_or_was_changed_is_a_conflict() -> None:
    with pytest.raises(ConflictError, match="POST /x: exists"):
        _decode(409, b'{"message": "exists"}', "POST /x")


def test_jobs_keep_the_labels_that_queue_them() -> None:
    cron = template("smoke", "spot")
    cron["spec"]["jobTemplate"]["metadata"]["labels"] |= {naming.QUEUE_NAME: "validation"}
    cluster = LiveFake(play=passes)
    Jobs(cluster, "c1", Clock().poller(), lambda _: None).start(cron)  # type: ignore[arg-type]
    assert cluster.created[0]["metadata"]["labels"][naming.QUEUE_NAME] == "validation"
