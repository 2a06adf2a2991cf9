"""States of dev pods, and which one a command means."""

from __future__ import annotations

from typing import Any

import pytest

from infra.domain import dev_pods, naming
from ops.cluster import ClusterError
from ops.dev import sessions
from ops.dev.sessions import DevSession
from tests.unit.ops.test_ops_commands import FakeCluster

ADA = "ada@example.com"


def job(suspend: bool = False, condition: str = "") -> dict[str, Any]:
    container = {"resources": {"requests": {naming.GPU: "2"}}}
    conditions = [{"type": condition, "status": "True", "reason": "Reason"}] if condition else []
    return {
        "metadata": {
            "name": "devpod-a-main",
            "namespace": "team-a",
            "uid": "1",
            "annotations": {naming.LAUNCHED_BY: ADA},
        },
        "spec": {"suspend": suspend, "template": {"spec": {"containers": [container]}}},
        "status": {"conditions": conditions},
    }


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "devpod-a-main-x"}, "spec": {"nodeName": "n"}, "status": status}


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
SAID = {"containerStatuses": [{"state": {"terminated": {"message": "idle for 60 minutes"}}}]}


@pytest.mark.parametrize(
    ("of_job", "of_pod", "evicted", "expected"),
    [
        (job(suspend=True), None, None, ("queued", "")),
        (job(suspend=True), None, "by a run", ("ended", "preempted: by a run")),
        (job(), pod(), None, ("starting", "")),
        (job(), pod(**READY), None, ("running", "")),
        (job(condition="Complete"), pod(**SAID), None, ("ended", "idle for 60 minutes")),
        (job(condition="Failed"), None, None, ("ended", "Reason")),
    ],
)
def test_state_says_what_the_dev_pod_does_and_why(
    of_job: dict[str, Any],
    of_pod: dict[str, Any] | None,
    evicted: str | None,
    expected: tuple[str, str],
) -> None:
    found = sessions._session(of_job, of_pod, evicted)
    assert (found.state, found.why) == expected
    assert (found.owner, found.gpus) == (ADA, 2)


def test_command_means_the_callers_only_dev_pod_or_the_named_one() -> None:
    prefix = dev_pods.job_name(ADA, "")

    def of(owner: str, name: str, state: str = sessions.RUNNING) -> DevSession:
        return DevSession(job=f"{prefix}{name}", namespace="team-a", owner=owner, state=state)

    main, other = of(ADA, "main"), of(ADA, "other")
    assert sessions.find([main, of("bob", "x")], ADA, None, prefix) == main
    assert sessions.find([main, other], ADA, "other", prefix) == other
    assert sessions.find([main, of(ADA, "old", sessions.ENDED)], ADA, None, prefix) == main
    for known, name in (([main, other], None), ([], None), ([of("bob", "main")], "main")):
        with pytest.raises(ClusterError, match="trainyard dev start"):
            sessions.find(known, ADA, name, prefix)


@pytest.mark.parametrize(("used", "refused"), [("1", False), ("2", True), (None, False)])
def test_a_dev_pod_beyond_the_number_of_the_team_is_refused_before_it_queues(
    used: str | None, refused: bool
) -> None:
    status = {"hard": {"pods": "2"}, "used": {"pods": used}} if used else {}
    quota = {"kind": "ResourceQuota", "metadata": {"name": "dev-pods"}, "status": status}
    cluster: Any = FakeCluster(resourcequotas=[quota])
    if refused:
        with pytest.raises(ClusterError, match="2 of 2 dev pods of the team are running"):
            sessions.check_number(cluster, "team-a", "a")
    else:
        sessions.check_number(cluster, "team-a", "a")
