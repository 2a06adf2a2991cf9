"""What `why` says of a run whose results could not be copied to the team's bucket."""

from __future__ import annotations

import json
from typing import Any

from ops.objects import Json
from ops.symptoms import history
from ops.symptoms.results import finished
from tests.unit.ops.run_fixtures import RUN_ID, ended, pod, snapshot

STORE = "s3://bucket/research"


def _copied(**summary: Any) -> Json:
    """The pod of a Job that copied the team's results."""
    found = pod("results-copy-1-abcde", "Failed", **ended(1, seconds_ago=600))
    [status] = found["status"]["containerStatuses"]
    status["state"]["terminated"]["message"] = json.dumps({"store": STORE, **summary})
    return found


def test_a_bucket_that_refuses_is_told_for_every_run() -> None:
    why = history(snapshot(results_pod=_copied(cause="403 AccessDenied: no permission")))
    assert why[0] == (
        f"results not copied to {STORE}/{RUN_ID} (10 min ago): 403 AccessDenied: no permission"
    )
    assert "kubectl logs -n team-research results-copy-1-abcde" in why[1]


def test_only_the_run_that_failed_is_told() -> None:
    other = {"other-v1-00000000": "step-00000020 is corrupt"}
    assert history(snapshot(results_pod=_copied(cause="", causes=other))) == []
    mine = {RUN_ID: "step-00000020 is corrupt"}
    assert "step-00000020 is corrupt" in history(snapshot(results_pod=_copied(causes=mine)))[0]


def test_a_pod_that_was_killed_or_still_runs_says_nothing() -> None:
    killed = pod("results-copy-1", "Failed", **ended(137, "OOMKilled"))
    assert finished(killed) and not finished(pod("results-copy-2"))
    assert history(snapshot(results_pod=killed)) == []
