"""Readiness checks during outages of the API server or of a node with its logs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ops.cluster import ClusterError, ForbiddenError, UnreachableError, WebhookError
from ops.objects import Json
from ops.ready import queueing
from ops.ready.outcome import Outcome
from ops.ready.polling import UNREACHABLE_S
from ops.ready.probes import SMOKE
from tests.unit.ops.ready_cluster import (
    Clock,
    LiveFake,
    RunJob,
    ends,
    facts,
    make_session,
    nodes,
    pool,
    template,
    templates,
)
from tests.unit.snapshots import Text


def _silent(clock: Clock, until: float) -> Callable[[], str]:
    """A cluster that does not answer before this second."""

    def probe() -> str:
        if clock.now < until:
            raise UnreachableError("it is being updated")
        return "back"

    return probe


def test_a_brief_api_server_outage_does_not_end_the_check() -> None:
    clock = Clock()
    assert clock.poller(900).wait_for(_silent(clock, UNREACHABLE_S - 5)) == "back"


@pytest.mark.parametrize(("limit_s", "gives_up"), [(900.0, UNREACHABLE_S), (10.0, 10.0)])
def test_a_long_api_server_outage_is_reported_after_a_minute(
    limit_s: float, gives_up: float
) -> None:
    clock = Clock()
    with pytest.raises(UnreachableError):
        clock.poller(limit_s).wait_for(_silent(clock, 1000))
    assert clock.now == gives_up


def test_a_failed_lease_renewal_is_retried_at_the_next_poll() -> None:
    renewed: list[float] = []

    def renew() -> None:
        if clock.now < 3:
            raise UnreachableError("it is being updated")
        renewed.append(clock.now)

    clock = Clock(renew)
    assert clock.poller().wait_for(lambda: "done" if clock.now >= 5 else None) == "done"
    assert renewed == [3.0, 4.0, 5.0]


def test_a_log_lost_with_its_node_is_read_from_the_pod_status(text: Text) -> None:
    def run_job(cluster: LiveFake, job: Json) -> None:
        bad = {"validation": "smoke", "ok": False, "node": "spot-0", "cause": "XID 79"}
        ends(cluster, job, [bad], well=False)
        for (kind, _, name), item in cluster.kept.items():
            if kind == "Pod":
                ended = item["status"]["containerStatuses"][0]["state"]["terminated"]
                ended["message"] = json.dumps(bad)
                cluster.logs.pop(name)

    class Lost(LiveFake):
        def text(self, path: str, _query: object, _timeout_s: float = 0) -> str | None:
            raise UnreachableError(f"GET {path}: the node does not answer")

    cluster = Lost(facts(pool("spot")), *nodes("spot"), *templates("spot"), run_job=run_job)
    [check] = SMOKE(make_session(cluster))
    assert check.outcome == Outcome.FAILED
    text(check.seen)


def _refuses(error: ClusterError) -> RunJob:
    """Rejects the creation of Jobs."""

    def run_job(cluster: LiveFake, job: Json) -> None:
        del cluster.kept[("Job", job["metadata"]["namespace"], job["metadata"]["name"])]
        raise error

    return run_job


@pytest.mark.parametrize(
    "error",
    [WebhookError("Kueue does not answer"), ForbiddenError("images by digest")],
    ids=["webhook", "forbidden"],
)
def test_jobs_that_cannot_be_created_fail_their_stage(error: ClusterError, text: Text) -> None:
    queue = [template(queueing.LOW), template(queueing.HIGH)]
    stack = [facts(pool("spot")), *nodes("spot"), *templates("spot"), *queue]
    cluster = LiveFake(*stack, run_job=_refuses(error))
    for stage in (SMOKE, queueing.check_queue):
        [check] = stage(make_session(cluster))
        assert check.outcome is Outcome.FAILED
        text(check.seen)
        assert check.remedy
    assert cluster.deleted == []
