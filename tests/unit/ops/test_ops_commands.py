"""The front door: finding a run, what scripts read, and which exit code they get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.domain import naming
from ops import __main__ as front_door
from ops import collect, drain
from ops.cluster import ForbiddenError, Kind
from ops.collect import NoSuchRunError
from ops.objects import Json
from tests.unit.ops.conftest import Cli
from tests.unit.ops.run_fixtures import (
    RUN_ID,
    at,
    cluster_queue,
    condition,
    ended,
    local_queue,
    node,
    pod,
    run,
    runs_on,
    stuck,
    waits,
    workload,
)
from tests.unit.snapshots import Text


class FakeCluster:
    """Answers from lists by plural; `forbidden` plurals are refused outside of namespaces.

    Logs and services are texts by a part of their path.
    """

    def __init__(self, forbidden: tuple[str, ...] = (), /, **items: list[Json]) -> None:
        self._items = items
        self._forbidden = forbidden
        self.patched: list[tuple[str, Any]] = []
        self.texts: dict[str, str] = {}

    def text(self, path: str, query: Any, timeout_s: float) -> str | None:
        if path.endswith("/log") and "pods/log" in self._forbidden:
            raise ForbiddenError("pods/log is forbidden")
        return next((text for part, text in self.texts.items() if part in path), None)

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        if kind.plural in self._forbidden and namespace is None:
            raise ForbiddenError(f"{kind.plural} is forbidden")
        found = [i for i in self._items.get(kind.plural, []) if i["kind"] == kind.kind]
        wanted = [term.partition("=")[::2] for term in selector.split(",") if "=" in term]
        return [
            item
            for item in found
            if namespace in (None, item["metadata"].get("namespace"))
            and all(item["metadata"].get("labels", {}).get(k) == v for k, v in wanted)
        ]

    def listing(self, *of: Any) -> tuple[list[Json], str]:
        """A list without a version, which cannot be watched."""
        return self.items(*of), ""

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        found = self._items.get(kind.plural, [])
        return next((item for item in found if item["metadata"]["name"] == name), None)

    def patch(self, kind: Kind, name: str, change: Any) -> None:
        self.patched.append((name, change))


def call(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, *argv: str) -> int:
    monkeypatch.setattr(front_door, "Cluster", lambda *_: cluster)
    return front_door.main(list(argv))


def stack(*more: Json, **items: list[Json]) -> FakeCluster:
    """A cluster with the run `hello`, waiting, and its queue."""
    queue = cluster_queue(spot=16)
    queue["metadata"]["labels"][naming.PART_OF] = naming.PROJECT
    usual: dict[str, list[Json]] = {
        "jobsets": [run(), *more],
        "clusterqueues": [queue],
        "localqueues": [],
        "workloads": [workload(waits(""))],
    }
    return FakeCluster(**(usual | items))


def test_a_run_is_found_by_its_id_or_as_the_newest_of_its_name() -> None:
    newer = run()
    newer["metadata"] = newer["metadata"] | {"creationTimestamp": at(1), "name": "hello-v2-b"}
    newer["metadata"]["labels"] = newer["metadata"]["labels"] | {naming.RUN_ID: "hello-v2-b"}
    known = collect.list_runs(stack(newer))  # type: ignore[arg-type]
    assert collect.find_run(known, "hello")["metadata"]["name"] == "hello-v2-b"
    assert collect.find_run(known, RUN_ID)["metadata"]["name"] == RUN_ID


def test_child_jobs_of_a_run_are_not_runs() -> None:
    inner = run(kind="Job")
    inner["metadata"] |= {"ownerReferences": [{"uid": "x", "name": RUN_ID, "controller": True}]}
    known = collect.list_runs(stack(jobs=[inner]))  # type: ignore[arg-type]
    assert [item["kind"] for item in known] == ["JobSet"]


def test_an_unknown_run_lists_the_existing_ones(cli: Cli, text: Text) -> None:
    assert cli(stack(), "run", "why", "helo") == 1
    output = cli.err
    text(output)
    with pytest.raises(NoSuchRunError, match=r"^run 'hello': not found"):
        collect.find_run([], "hello")


def test_an_answer_has_a_headline_evidence_and_a_remedy(cli: Cli, text: Text) -> None:
    assert cli(stack(), "run", "why", "hello") == 0
    output = cli.out.splitlines()
    text(output[0])
    text(output[1])
    text(output[2])


def test_access_to_one_namespace_only_requires_the_team_flag(cli: Cli, text: Text) -> None:
    forbidden = ("jobsets", "jobs", "workloads", "clusterqueues", "resourceflavors", "nodes")
    cluster = FakeCluster(forbidden, jobsets=[run()], workloads=[workload(waits("insufficient"))])
    assert cli(cluster, "run", "why", "hello") == 2
    text(cli.err)
    assert cli(cluster, "run", "why", "hello", "--team", "research", "--json") == 0
    answer = json.loads(cli.out)
    assert {"nodes", "clusterqueues"} <= set(answer["hidden"])
    assert "workloads" not in answer["hidden"]


def broken_stack(forbidden: tuple[str, ...] = ()) -> FakeCluster:
    """A cluster with the run `hello`, whose pod has just ended badly."""
    gone = pod("hello-0", "Failed", **ended(1))
    queue = [local_queue()]
    items = {"jobsets": [run()], "workloads": [runs_on()], "pods": [gone], "localqueues": queue}
    return FakeCluster(forbidden, clusterqueues=[cluster_queue(spot=16)], **items)


def why(cli: Cli, cluster: FakeCluster, *argv: str) -> Any:
    assert cli(cluster, "run", "why", "hello", "--json", *argv) == 0
    return json.loads(cli.out)


def test_logs_are_read_for_the_cause(cli: Cli, text: Text) -> None:
    cluster = broken_stack()
    cluster.texts["/pods/hello-0/log"] = "2026-11-21T11:59:00Z launch: the nodes did not meet: late"
    answer = why(cli, cluster)
    assert answer["symptom"] == "rendezvous-failed"
    text(answer["evidence"][0])


def test_forbidden_logs_are_reported(cli: Cli) -> None:
    answer = why(cli, broken_stack(("pods/log",)))
    assert answer["symptom"] == "restarting"
    assert "pods/log" in answer["hidden"]


def test_a_run_without_prometheus_is_explained(cli: Cli, text: Text) -> None:
    [gap] = why(cli, broken_stack())["gaps"]
    text(gap)
    [gap] = why(cli, broken_stack(), "--prometheus", "http://127.0.0.1:9")["gaps"]
    assert "http://127.0.0.1:9" in gap
    assert why(cli, stack())["gaps"] == []


def test_metrics_of_the_cluster_are_part_of_the_answer(cli: Cli) -> None:
    cluster = broken_stack()
    xid = {"metric": {"node": "spot-0", "gpu": "3", "xid": "79"}, "value": [0, "1"]}
    result = {"status": "success", "data": {"result": [xid]}}
    cluster.texts["prometheus-operated"] = json.dumps(result)
    answer = why(cli, cluster)
    assert answer["symptom"] == "gpu-fault"
    assert answer["gaps"] == []


def test_an_invalid_metrics_url_is_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        call(monkeypatch, stack(), "run", "why", "hello", "--prometheus", "file:///etc/passwd")
    assert "argument --prometheus: got file:///etc/passwd" in capsys.readouterr().err


def test_pods_of_other_runs_are_read_for_an_unschedulable_run(cli: Cli, text: Text) -> None:
    other = pod("big-0")
    other["metadata"] |= {"namespace": "team-production"}
    other["metadata"]["labels"] = {naming.RUN_ID: "big-v1-1", naming.TEAM: "production"}
    items: Any = {
        "jobsets": [run()],
        "workloads": [runs_on()],
        "localqueues": [local_queue()],
        "clusterqueues": [cluster_queue(spot=16)],
        "nodes": [node("spot-0")],
        "pods": [stuck(message="1 Insufficient nvidia.com/gpu"), other],
    }
    answer = why(cli, FakeCluster(**items))
    assert answer["symptom"] == "no-gpu-capacity"
    text(answer["evidence"])


def test_drain_stops_the_queue_and_waits_for_its_pods(cli: Cli, text: Text) -> None:
    cluster = stack()
    assert cli(cluster, "stack", "drain", "--team", "research") == 0
    assert cluster.patched == [("team-research", {"spec": {"stopPolicy": "HoldAndDrain"}})]
    text(cli.out)


def test_drain_that_times_out_lists_remaining_pods(cli: Cli, text: Text) -> None:
    cluster = stack(workloads=[runs_on()], pods=[pod("a")])
    assert cli(cluster, "stack", "drain", "--timeout", "0") == 1
    output = cli.out
    text(output)


def test_a_team_without_queue_gets_the_list_of_queues(cli: Cli, text: Text) -> None:
    assert cli(stack(), "stack", "drain", "--team", "reserch") == 2
    text(cli.err)


def test_drain_counts_pods_of_drained_teams_only() -> None:
    queue = cluster_queue(spot=1)
    foreign = pod("x")
    foreign["metadata"]["labels"] = foreign["metadata"]["labels"] | {naming.TEAM: "production"}
    over = workload(condition("Finished"), flavor="spot", run_id="over-v1-1")
    left = drain.remaining([queue], [runs_on(), over], [pod("a"), pod("b", "Succeeded"), foreign])
    assert left.runs == (RUN_ID,)
    assert left.pods == ("team-research/a",)


@pytest.mark.parametrize(("team", "code"), [("reserch", 2), ("research", 1)])
def test_an_unknown_team_is_an_error(team: str, code: int, cli: Cli, text: Text) -> None:
    home = {"kind": "Namespace", "metadata": {"name": "team-research"}}
    assert cli(FakeCluster(namespaces=[home]), "run", "why", "hello", "--team", team) == code
    text(cli.err)


def test_forbidden_requests_name_who_has_access(cli: Cli, text: Text) -> None:
    assert cli(FakeCluster(("clusterqueues",)), "stack", "resume") == 2
    text(cli.err)
