"""Gangs on the real Kueue and JobSet: admitted as a whole, spot first, restarted by cause."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.domain import naming
from infra.tenancy import team
from tests.golden.example_runs import PREPARED, run
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import HOST, until
from tests.sandbox.team_kit import TeamStage, process_pool
from training.launchers import LAUNCHERS
from training.spec import Resources, RunSpec

pytestmark = [pytest.mark.sandbox, pytest.mark.long(78)]

TEAM = "gang"
NAMESPACE = naming.namespace(TEAM)
SPOT, ON_DEMAND = "gang-spot", "gang-ondemand"
STAGE = TeamStage(
    team=TEAM,
    pools=[
        process_pool(ON_DEMAND, "on-demand", 2, "gang-zone"),
        process_pool(SPOT, "spot", 2, "gang-zone"),
    ],
    guaranteed={SPOT: 1},
)
RESTART_S = 240.0
"""Two restarts of two processes, on a machine that may be busy with other tests."""


@pytest.fixture(scope="module")
def gangs(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a team, its queue and four process nodes; deleted at the end."""
    with STAGE.deployed(cluster, "jobsets") as ready:
        yield ready


def _gang(script: str, **changes: Any) -> tuple[RunSpec, dict[str, Any]]:
    """A run of two nodes, and its JobSet with a shell in the trainer's place."""
    spec = run(
        dataset=PREPARED,
        name=changes.pop("name"),
        team=TEAM,
        processes_per_node=1,
        resources=Resources(cpu="1", memory="1Gi", shm="64Mi"),
        max_hours=None,
        **changes,
    )
    manifest = copy.deepcopy(LAUNCHERS["jobset"].render(spec, STAGE.platform())[-1])
    body = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    main = body["containers"][0]
    main |= {"image": HOST, "command": ["sh", "-c", script], "workingDir": "/", "volumeMounts": []}
    body |= {"volumes": [], "terminationGracePeriodSeconds": 5}
    return spec, STAGE.own(manifest)


def _status(cluster: Cluster, spec: RunSpec) -> dict[str, Any]:
    text = cluster.kubectl("get", "jobset", spec.run_id, "-n", NAMESPACE, "-o", "json")
    status: dict[str, Any] = json.loads(text).get("status", {})
    return status


def _running_nodes(cluster: Cluster, spec: RunSpec) -> list[str]:
    selector = f"{naming.RUN_ID}={spec.run_id}"
    text = cluster.kubectl("get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "json")
    return sorted(
        pod["spec"]["nodeName"]
        for pod in json.loads(text)["items"]
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    )


def test_gang_starts_on_spot_restarts_by_cause_and_moves_when_spot_is_gone(
    gangs: Cluster,
) -> None:
    # As a trainer does, it ends on SIGTERM; as process 1 of its container it would else ignore it.
    work = "trap 'exit 75' TERM; sleep 600 & wait"
    script = f"case $TRAINYARD_ATTEMPT in 0) exit 75;; 1) exit 1;; *) {work};; esac"
    spec, manifest = _gang(script, name="by-cause")
    gangs.apply(manifest)

    def restarted() -> bool:
        status = _status(gangs, spec)
        return status.get("restarts") == 2 and len(_running_nodes(gangs, spec)) == 2

    until(restarted, "two restarts, then two running pods", RESTART_S)
    assert _running_nodes(gangs, spec) == [f"{SPOT}-0", f"{SPOT}-1"]
    # The preemption (75) did not count, the failure (1) did.
    assert _status(gangs, spec)["restartsCountTowardsMax"] == 1

    gangs.kubectl("delete", "node", f"{SPOT}-1")
    until(
        lambda: _running_nodes(gangs, spec) == [f"{ON_DEMAND}-0", f"{ON_DEMAND}-1"],
        "the whole gang runs on demand",
        RESTART_S,
    )
    gangs.kubectl("delete", "jobset", spec.run_id, "-n", NAMESPACE, "--timeout=180s")


def test_gang_with_invalid_configuration_fails_without_restart(gangs: Cluster) -> None:
    spec, manifest = _gang("exit 78", name="bad-config", capacity_types=("on-demand",))
    gangs.apply(manifest)
    until(lambda: _status(gangs, spec).get("terminalState") == "Failed", "the JobSet failed")
    assert _status(gangs, spec).get("restarts", 0) == 0


def test_gang_that_does_not_fit_as_a_whole_starts_no_pod(gangs: Cluster) -> None:
    wide, manifest = _gang("sleep 600", name="too-wide", nodes=3, capacity_types=("on-demand",))
    gangs.apply(manifest)

    def pending() -> bool:
        text = gangs.kubectl("get", "workloads", "-n", NAMESPACE, "-o", "json")
        return any(
            condition["type"] == "QuotaReserved" and condition["reason"] == "Pending"
            for workload in json.loads(text)["items"]
            if workload["metadata"]["ownerReferences"][0]["name"] == wide.run_id
            for condition in workload.get("status", {}).get("conditions", [])
        )

    until(pending, "Kueue reports why the gang waits")
    assert _running_nodes(gangs, wide) == []
    pods = gangs.kubectl("get", "pods", "-n", NAMESPACE, "-o", "name")
    assert wide.run_id not in pods


def test_another_namespace_cannot_use_the_teams_queue(gangs: Cluster) -> None:
    intruder = team.local_queue(TEAM)
    intruder["metadata"]["namespace"] = "default"
    intruder["metadata"]["name"] = "borrowed"
    gangs.apply(intruder)
    spec, manifest = _gang("sleep 600", name="intruder", capacity_types=("on-demand",))
    manifest["metadata"]["namespace"] = "default"
    manifest["metadata"]["labels"][naming.QUEUE_NAME] = "borrowed"
    gangs.apply(manifest)
    try:

        def refused() -> bool:
            text = gangs.kubectl("get", "workloads", "-n", "default", "-o", "json")
            return "namespace doesn't match" in text.lower()

        until(refused, "Kueue refuses the namespace")
    finally:
        gangs.kubectl("delete", "jobset", spec.run_id, "-n", "default", "--timeout=180s")
        gangs.delete(intruder)
