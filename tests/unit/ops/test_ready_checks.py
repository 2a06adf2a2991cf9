"""Stages of the readiness check that look at nodes, Jobs, drills and queues: outcome, cause and remedy of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.domain import naming
from ops import objects
from ops.cluster import ClusterError, ForbiddenError, UnreachableError, WebhookError
from ops.objects import Json
from ops.ready import pools, probes, queueing, stack_facts
from ops.ready.job_diagnosis import PodResult, parse_log
from ops.ready.jobs import SESSION_LABEL, UNREACHABLE_S, Jobs
from ops.ready.probes import COLLECTIVE, MULTI_NODE, SINGLE_NODE, SMOKE, Probe
from ops.ready.results import Check, Outcome
from ops.ready.stack_facts import Pool
from tests.unit.ops.ready_cluster import (
    Clock,
    LiveFake,
    RunJob,
    add_pod,
    condition,
    ends,
    facts,
    job_result,
    kind_of,
    make_session,
    node,
    nodes,
    passes,
    pool,
    template,
    templates,
    whole,
)
from tests.unit.snapshots import Text

PASSED, FAILED, SKIPPED, SIMULATED = (
    Outcome.PASSED,
    Outcome.FAILED,
    Outcome.SKIPPED,
    Outcome.SIMULATED,
)
Cases = dict[str, tuple[Outcome, Callable[[], Check]]]


# Nodes of a pool.


def parsed(low: int = 2, high: int = 2, **changes: Any) -> Pool:
    text = facts(pool("spot", low, high, **changes))["data"][stack_facts.KEY]
    return stack_facts.parse(text).pools[0]


def counted(found: list[Json], low: int = 2, high: int = 2, **changes: Any) -> Check:
    return pools.check_pool(parsed(low, high, **changes), found)


LOST = [node("spot-0", "spot", ready=False), node("spot-1", "spot", unschedulable=True)]
CAPACITY: Cases = {
    "a complete pool": (PASSED, lambda: counted(nodes("spot"))),
    "scaled to zero": (SKIPPED, lambda: counted([], 0, 50)),
    "a count within bounds": (PASSED, lambda: counted(nodes("spot", 3), 0, 50)),
    "a node is missing": (FAILED, lambda: counted(nodes("spot", 1))),
    "nodes are unavailable": (FAILED, lambda: counted([*LOST, node("spot-2", "spot")], 2, 3)),
    "a cordoned node more than needed": (
        PASSED,
        lambda: counted([*nodes("spot"), node("spot-2", "spot", unschedulable=True)], high=3),
    ),
    "a node without GPUs": (
        FAILED,
        lambda: counted([node("spot-0", "spot"), node("spot-1", "spot", gpus=0)]),
    ),
    "a node without another device": (
        FAILED,
        lambda: pools.check_pool(
            parsed().model_copy(update={"allocatable": {naming.GPU: 1, naming.EFA: 4}}),
            nodes("spot"),
        ),
    ),
    "foreign nodes": (FAILED, lambda: counted(nodes("spot", 3))),
    "no node of Karpenter": (FAILED, lambda: counted([], nodes="karpenter")),
    "no node of a group": (FAILED, lambda: counted([], nodes="managed")),
}


# Jobs of a pool's templates.


def one(cluster: LiveFake, probe: Probe = SMOKE, **changes: Any) -> Check:
    [check] = probe(make_session(cluster, **changes))
    return check


def ended(kind: str, *lines: Json | str, well: bool = False, probe: Probe = SMOKE) -> Check:
    return one(whole(job_result(kind, *lines, well=well)), probe)


def with_log(name: str, old: str, new: str) -> RunJob:
    """Jobs pass, and one pod's log differs."""

    def run_job(cluster: LiveFake, job: Json) -> None:
        passes(cluster, job)
        if name in cluster.logs:
            cluster.logs[name] = cluster.logs[name].replace(old, new)

    return run_job


def busy(name: str) -> LiveFake:
    cluster = whole()
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    cluster.put(
        {
            "kind": "Pod",
            "metadata": {"name": f"run-on-{name}", "namespace": "team-research"},
            "spec": {"nodeName": name, "containers": [{"name": "trainer", "resources": limits}]},
            "status": {"phase": "Running"},
        }
    )
    return cluster


def shared() -> LiveFake:
    kept = [item for item in templates("spot") if "train-single" in item["metadata"]["name"]]
    return LiveFake(facts(pool("spot", sharing="timeSlicing")), *nodes("spot"), *kept)


def held(**status: Any) -> RunJob:
    """Jobs wait in their queue, with Workloads of this status."""

    def run_job(cluster: LiveFake, job: Json) -> None:
        job["spec"]["suspend"] = True
        owner = {"name": job["metadata"]["name"], "uid": "u", "controller": True}
        metadata = {"name": "w", "namespace": stack_facts.NAMESPACE, "ownerReferences": [owner]}
        cluster.put({"kind": "Workload", "metadata": metadata, "status": status})

    return run_job


def refused(error: ClusterError) -> RunJob:
    def run_job(cluster: LiveFake, job: Json) -> None:
        del cluster.kept[("Job", job["metadata"]["namespace"], job["metadata"]["name"])]
        raise error

    return run_job


def denied(cluster: LiveFake, job: Json) -> None:
    event = {"reason": "FailedCreate", "message": "denied"}
    metadata = {"name": "e", "namespace": stack_facts.NAMESPACE}
    about = {"involvedObject": {"uid": job["metadata"]["uid"]}}
    cluster.put({"kind": "Event", "metadata": metadata, **event, **about})


def deleted(cluster: LiveFake, job: Json) -> None:
    del cluster.kept[("Job", stack_facts.NAMESPACE, job["metadata"]["name"])]


def pending(**status: Any) -> RunJob:
    def run_job(cluster: LiveFake, job: Json) -> None:
        add_pod(cluster, job, 0, "Pending")
        [pod] = [item for (kind, _, _), item in cluster.kept.items() if kind == "Pod"]
        pod["status"] |= status

    return run_job


class LostLogs(LiveFake):
    """Logs are gone with their node; the statuses of pods have the last line."""

    def text(self, path: str, _query: object, _timeout_s: float = 0) -> str | None:
        raise UnreachableError(f"GET {path}: the node does not answer")


def lost_with_its_node() -> LiveFake:
    bad = {"validation": "smoke", "ok": False, "node": "spot-0", "cause": "XID 79"}

    def run_job(cluster: LiveFake, job: Json) -> None:
        ends(cluster, job, [bad], well=False)
        for (kind, _, _), item in cluster.kept.items():
            if kind == "Pod":
                state = item["status"]["containerStatuses"][0]["state"]
                state["terminated"]["message"] = json.dumps(bad)

    return LostLogs(facts(pool("spot")), *nodes("spot"), *templates("spot"), run_job=run_job)


XID = {"validation": "smoke", "node": "spot-1", "ok": False, "cause": "XID 79", "remedy": "go"}
GOOD = {"validation": "smoke", "node": "spot-0", "ok": True}
EFA = {"validation": "collective", "ok": True, "transport": "efa", "memlock": 1 << 43}
FLEET = facts(pool("fleet", nodes="kwok"))
SINGLE = [facts(pool("one", 1, 1)), *nodes("one", 1)]
ZERO = [facts(pool("spot", 0, 50)), *templates("spot")]
NO_ROOM = condition("QuotaReserved", "False", message="no room")
UNPLACED = condition("PodScheduled", "False", message="0/3 nodes are available")
NO_TAG = {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}

PROBES: Cases = {
    "smoke": (PASSED, lambda: one(whole())),
    "collective: the lowest bandwidth": (
        PASSED,
        lambda: one(whole(with_log("collective-spot-c1-1", "9.5", "2.25")), COLLECTIVE),
    ),
    "collective: transport and memory": (
        PASSED,
        lambda: ended(
            "collective",
            *({**EFA, "node": f"spot-{n}"} for n in range(2)),
            well=True,
            probe=COLLECTIVE,
        ),
    ),
    "a pod computed on its CPU": (
        SIMULATED,
        lambda: one(whole(with_log("smoke-spot-c1-1", "cuda", "cpu"))),
    ),
    "too few free nodes": (SKIPPED, lambda: one(busy("spot-0"), MULTI_NODE)),
    "no node of a pool scaled to zero": (SKIPPED, lambda: one(LiveFake(*ZERO))),
    "a pool scaled to zero, named": (PASSED, lambda: one(LiveFake(*ZERO), allow_scale_up=True)),
    "simulated nodes": (SKIPPED, lambda: one(LiveFake(FLEET))),
    "a gang on one node": (SKIPPED, lambda: one(LiveFake(*SINGLE), MULTI_NODE)),
    "no template": (FAILED, lambda: one(LiveFake(*SINGLE))),
    "a gang on shared GPUs": (SKIPPED, lambda: one(shared(), COLLECTIVE)),
    "training on shared GPUs": (PASSED, lambda: one(shared(), SINGLE_NODE)),
    "a failed line with its node": (FAILED, lambda: ended("smoke", GOOD, XID)),
    "no result of a failed pod": (FAILED, lambda: ended("smoke", "Illegal instruction\x1b[2J")),
    "no result of a pod": (FAILED, lambda: ended("smoke", "all fine", well=True)),
    "rejected by a policy": (
        FAILED,
        lambda: one(whole(refused(ForbiddenError("POST jobs: images come by digest")))),
    ),
    "no webhook": (FAILED, lambda: one(whole(refused(WebhookError("Kueue does not answer"))))),
    "held by its queue": (FAILED, lambda: one(whole(held(conditions=[NO_ROOM])))),
    "preempted": (
        SKIPPED,
        lambda: one(
            whole(held(schedulingStats={"evictions": [{"reason": "Preempted", "count": 1}]}))
        ),
    ),
    "its pods are rejected": (FAILED, lambda: one(whole(denied))),
    "unschedulable": (FAILED, lambda: one(whole(pending(conditions=[UNPLACED])))),
    "its image cannot be pulled": (
        FAILED,
        lambda: one(whole(pending(containerStatuses=[{"name": "check", "state": NO_TAG}]))),
    ),
    "timed out": (FAILED, lambda: one(whole(lambda c, job: add_pod(c, job, 0, "Running")))),
    "deleted by others": (FAILED, lambda: one(whole(deleted))),
    "its log is lost with the node": (FAILED, lambda: one(lost_with_its_node())),
}


# Nodes that must be alike.


def results(*drivers: str) -> list[PodResult]:
    return [
        PodResult(ok=True, pod=f"p{n}", node=f"n{n}", facts={"driver": driver, "model": "L4"})
        for n, driver in enumerate(drivers)
    ]


MIXED = [*results("580.1"), PodResult(ok=True, pod="x", node="x", facts={"model": "A10G"})]


def alike(lines: list[PodResult], *types: str) -> Check:
    return pools.compare_pool(parsed(instanceTypes=list(types or ["g6.xlarge"])), lines)


HOMOGENEOUS: Cases = {
    "equal nodes": (PASSED, lambda: alike(results("580.1", "580.1"))),
    "another driver": (FAILED, lambda: alike(results("580.1", "570.9", "580.1"))),
    "another model": (FAILED, lambda: alike(MIXED)),
    "another model of a mixed pool": (PASSED, lambda: alike(MIXED, "g6.xlarge", "g5.xlarge")),
    "one node": (SKIPPED, lambda: alike(results("580.1"))),
}


# Restores.


def restored(*teams: str, run_job: RunJob | None = None, only: str = "") -> list[Check]:
    drills = [template("restore-drill", namespace=f"team-{team}") for team in teams]
    cluster = LiveFake(facts(), *drills, run_job=run_job)
    found = stack_facts.read(cluster)  # type: ignore[arg-type]
    team: Any = {"team": found.team(only)} if only else {}
    return list(probes.check_teams(make_session(cluster, **team)))


def drilled(**line: Any) -> RunJob:
    lines = {"validation": "restore-drill", "ok": True, **line}
    return job_result("restore-drill", lines, well=bool(lines["ok"]))


RESTORES: Cases = {
    "no drill": (SKIPPED, lambda: restored()[0]),
    "no checkpoint": (SKIPPED, lambda: restored("serving", run_job=drilled(runs=0))[0]),
    "a corrupt checkpoint": (
        FAILED,
        lambda: restored(
            "serving", run_job=drilled(ok=False, cause="hello-v1: shard 0 is corrupt")
        )[0],
    ),
}


@pytest.mark.parametrize(
    ("given", "drilled_teams"),
    [
        ({"teams": ("research", "serving")}, ["serving"]),
        ({"teams": ("research",)}, ["research"]),
        ({"teams": ("research", "serving"), "run_job": drilled(runs=0)}, ["serving", "research"]),
        ({"teams": ("research", "serving"), "only": "research"}, ["research"]),
    ],
    ids=["production first", "another without production", "none has checkpoints", "named"],
)
def test_teams_are_drilled(given: Any, drilled_teams: list[str]) -> None:
    found = restored(*given.pop("teams"), **given)
    assert [check.subject for check in found] == [f"team {team}" for team in drilled_teams]


# Queueing: the fake plays Kueue, one step at each rest.


class Kueue:
    """Admits one Job at a time, the higher first."""

    def __init__(self, *, room: int = 1, comes_back: bool = True) -> None:
        self.cluster = LiveFake(
            facts(), template(queueing.LOW), template(queueing.HIGH), run_job=self._queue
        )
        self._room, self._comes_back = room, comes_back

    @staticmethod
    def _queue(_cluster: LiveFake, job: Json) -> None:
        job["spec"]["suspend"] = True

    def step(self) -> None:
        """One probe of the controller."""
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
            evicted = {"reason": "Preempted", "underlyingCause": "InClusterQueue", "count": 1}
            owner = {"name": objects.name(low), "uid": "u", "controller": True}
            place = {"name": "low", "namespace": stack_facts.NAMESPACE, "ownerReferences": [owner]}
            status = {"schedulingStats": {"evictions": [evicted]}}
            self.cluster.put({"kind": "Workload", "metadata": place, "status": status})
        if self._room:
            high["spec"]["suspend"] = False

    def probe(self) -> Check:
        [check] = queueing.check_queue(make_session(self.cluster, Clock(self.step)))
        assert self.cluster.jobs() == []
        return check


def queued(cluster: LiveFake) -> Check:
    [check] = queueing.check_queue(make_session(cluster))
    return check


BOTH = [template(queueing.LOW), template(queueing.HIGH)]
QUEUEING: Cases = {
    "preempted and admitted again": (PASSED, lambda: Kueue().probe()),
    "both admitted": (FAILED, lambda: Kueue(room=2).probe()),
    "not preempted": (FAILED, lambda: Kueue(room=0).probe()),
    "not admitted again": (FAILED, lambda: Kueue(comes_back=False).probe()),
    "another scheduler": (SKIPPED, lambda: queued(LiveFake(facts(scheduler="yunikorn")))),
    "a template is missing": (FAILED, lambda: queued(LiveFake(facts(), BOTH[0]))),
    "queueing without a webhook": (
        FAILED,
        lambda: queued(
            LiveFake(facts(), *BOTH, run_job=refused(WebhookError("Kueue does not answer")))
        ),
    ),
}
ALL: Cases = {**CAPACITY, **PROBES, **HOMOGENEOUS, **RESTORES, **QUEUEING}


@pytest.mark.parametrize("case", ALL)
def test_a_check_says_what_it_has_seen(case: str, text: Text) -> None:
    outcome, look = ALL[case]
    check = look()
    assert check.outcome is outcome
    assert bool(check.remedy) == (outcome is FAILED)
    text([f"{check.subject}: {check.seen}", *(f"-> {line}" for line in check.remedy.splitlines())])


def test_a_job_follows_its_template_on_all_nodes_and_is_deleted() -> None:
    cron = template("smoke", "spot", 1)
    cron["spec"]["jobTemplate"]["metadata"]["labels"] |= {naming.QUEUE_NAME: "validation"}
    cluster = LiveFake(facts(pool("spot", 1, 9)), *nodes("spot", 5), cron)
    assert one(cluster).outcome is PASSED
    [job] = cluster.created
    assert job["metadata"]["name"] == "smoke-spot-c1"
    labels = {SESSION_LABEL: "c1", naming.QUEUE_NAME: "validation"}
    assert job["metadata"]["labels"].items() >= labels.items()
    assert "ownerReferences" not in job["metadata"] and cluster.jobs() == []
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (5, 5)
    assert job["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] == "5"


def test_a_job_is_recorded_before_its_creation_and_only_then_deleted() -> None:
    def dies(_cluster: LiveFake, _job: Json) -> None:
        raise KeyboardInterrupt

    cluster = whole(dies)
    jobs = Jobs(cluster, "c1", Clock().poller(), lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        jobs.start(template("smoke", "spot"))
    jobs.clear()
    assert cluster.jobs() == [] and cluster.deleted == ["smoke-spot-c1"]
    rejected = whole(refused(ForbiddenError("no")))
    assert one(rejected).outcome is FAILED and rejected.deleted == []


def test_an_image_that_cannot_be_pulled_ends_the_wait_at_once() -> None:
    clock = Clock()
    cluster = whole(pending(containerStatuses=[{"name": "check", "state": NO_TAG}]))
    assert one(cluster, jobs=make_session(cluster, clock).jobs).outcome is FAILED
    assert clock.now == 0


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"runs": 1, "restored": 1, "bytes": 12_938_606}, "1 run, 1 restored, 12.94 MB"),
        ({"runs": 3, "restored": 2, "bytes": 1_400_000_000_000}, "3 runs, 2 restored, 1.4 TB"),
        ({"bytes": 999}, "999 bytes"),
        ({"bytes": 0, "runs": "x"}, "runs x, 0 bytes"),
    ],
)
def test_facts_are_formatted_in_readable_units(facts: Json, shown: str) -> None:
    line = PodResult(ok=True, pod="p", facts=facts)
    assert line.text("runs", "restored", "bytes") == shown


@pytest.mark.parametrize("log", ["", "no JSON", "{broken", '{"other": 1}', '["validation"]'])
def test_only_result_lines_of_a_validation_count(log: str) -> None:
    assert parse_log(log, "pod") is None
    found = parse_log(f'{{"validation": "smoke", "ok": true}}\n{log}', "pod")
    assert found is not None and found.ok
    quoted = parse_log('{"validation": "smoke", "ok": "true"}', "pod")
    assert quoted is not None and not quoted.ok


# Outages of the API server.


def silent(clock: Clock, until: float) -> Callable[[], str]:
    """A cluster that does not answer before this second."""

    def probe() -> str:
        if clock.now < until:
            raise UnreachableError("it is being updated")
        return "back"

    return probe


def test_a_brief_outage_does_not_end_the_check() -> None:
    clock = Clock()
    assert clock.poller(900).wait_for(silent(clock, UNREACHABLE_S - 5)) == "back"


@pytest.mark.parametrize(("limit_s", "gives_up"), [(900.0, UNREACHABLE_S), (10.0, 10.0)])
def test_a_long_outage_is_reported_after_a_minute(limit_s: float, gives_up: float) -> None:
    clock = Clock()
    with pytest.raises(UnreachableError):
        clock.poller(limit_s).wait_for(silent(clock, 1000))
    assert clock.now == gives_up
