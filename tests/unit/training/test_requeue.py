"""trainer.requeue: which Workloads it evicts and queues again, and what it does when nobody answers."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from infra.addons import mpi_operator
from infra.domain import naming
from infra.domain.launcher_support import LAUNCHERS
from trainer import requeue
from training.launchers import pod_failure_policy

Json = dict[str, Any]


def pod(workload: str, host: str = "", **changes: Any) -> Json:
    """A pod of an mpijob that waits for `host`."""
    found: Json = {
        "metadata": {
            "name": f"{workload}-worker-0",
            "namespace": "team-a",
            "labels": {naming.LAUNCHER: "mpijob"},
            "annotations": {requeue.WORKLOAD_OF: workload},
        },
        "spec": {"nodeSelector": {naming.HOSTNAME: host} if host else {}},
        "status": {"phase": "Pending"},
    }
    for key, value in changes.items():
        found[key] |= value
    return found


def test_names_are_those_of_the_platform() -> None:
    assert requeue.LAUNCHER == naming.LAUNCHER
    assert requeue.HOST == naming.HOSTNAME
    assert requeue.KUEUE_API == naming.KUEUE_API
    assert requeue.MARK == mpi_operator.REQUEUED
    assert set(requeue.JOB_KINDS) <= set(LAUNCHERS)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, True),
        ({"status": {"phase": "Running"}}, False),
        ({"spec": {"nodeName": "lost"}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"metadata": {"annotations": {}}}, False),
        ({"spec": {"nodeSelector": {naming.HOSTNAME: "there"}}}, False),
        ({"spec": {"nodeSelector": {}}}, False),
    ],
)
def test_only_a_pod_that_waits_for_a_missing_node_is_stranded(changed: Json, found: bool) -> None:
    lost = requeue.stranded([pod("run", "lost", **changed)], ["there"], [])
    assert lost == ({("team-a", "run"): "lost"} if found else {})


@pytest.mark.parametrize(
    ("gate", "unhealthy", "found"),
    [
        (requeue.GATE, ["lost"], True),
        (requeue.GATE, ["there"], False),
        (requeue.GATE, [], False),
        ("another", ["lost"], False),
    ],
)
def test_pod_that_kueue_does_not_place_since_a_node_is_gone_is_stranded(
    gate: str, unhealthy: list[str], found: bool
) -> None:
    waits = pod("run", spec={"schedulingGates": [{"name": gate}]})
    owner = workload("run")
    owner["status"]["unhealthyNodes"] = [{"name": node} for node in unhealthy]
    lost = requeue.stranded([waits], ["there"], [owner])
    assert lost == ({("team-a", "run"): "lost"} if found else {})


def test_a_pod_that_kueue_has_ended_is_not_created_again_so_its_gang_is_queued_again() -> None:
    ended = {"phase": "Failed", "conditions": [{"type": requeue.ENDED, "status": "True"}]}
    assert requeue.ENDED in pod_failure_policy.DISRUPTED
    lost = requeue.stranded([pod("run", "there", status=ended)], ["there"], [])
    assert lost == {("team-a", "run"): "there"}
    launcher = pod("run", "there", status=ended)
    launcher["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "run-launcher"}]
    assert not requeue.stranded([launcher], ["there"], [])
    failed = pod("run", "there", status={"phase": "Failed"})
    assert not requeue.stranded([failed], ["there"], [])


class Server:
    """An API server with pods, nodes and Workloads, which records what is written. `page`: objects per answer."""

    def __init__(self) -> None:
        self.pods: list[Json] = []
        self.nodes: list[str] = ["there"]
        self.workloads: dict[str, Json] = {}
        self.patches: list[tuple[str, Json]] = []
        self.tokens: set[str] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, server.read(self.path))

            def do_PATCH(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.headers["Content-Type"] == "application/merge-patch+json"
                self._answer(server.write(self.path.rpartition("/")[2], body), {})

            def _answer(self, status: int, body: Json) -> None:
                server.tokens.add(self.headers.get("Authorization", ""))
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def read(self, path: str) -> Json:
        """One object per page."""
        parts = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        if parts.path.endswith("/workloads"):
            chosen = list(self.workloads.values())
        elif parts.path.endswith("/pods"):
            assert query["labelSelector"] == f"{naming.LAUNCHER} in (mpijob)"
            chosen = self.pods
        else:
            chosen = [{"metadata": {"name": name}} for name in self.nodes]
        at = int(query.get("continue", "0"))
        more = {"continue": str(at + 1)} if at + 1 < len(chosen) else {}
        return {"items": chosen[at : at + 1], "metadata": more}

    def write(self, name: str, change: Json) -> int:
        if name not in self.workloads:
            return 404
        self.patches.append((name, change))
        notes = self.workloads[name]["metadata"]["annotations"]
        for key, value in change["metadata"]["annotations"].items():
            notes.pop(key, None) if value is None else notes.update({key: value})
        return 200

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture
def looking(server: Server, tmp_path: Path) -> requeue.Requeue:
    (tmp_path / "token").write_text("secret\n")
    api = requeue.Api(server=server.url, token=tmp_path / "token", tls=None)
    return requeue.Requeue(api)


def workload(name: str, *, admitted: bool = True) -> Json:
    """A Workload of team-a."""
    status = {"admission": {"clusterQueue": "a"}} if admitted else {}
    return {"metadata": {"name": name, "namespace": "team-a", "annotations": {}}, "status": status}


def test_gang_leaves_its_nodes_before_it_is_queued_again(
    server: Server, looking: requeue.Requeue, capsys: pytest.CaptureFixture[str]
) -> None:
    server.workloads = {"run": workload("run"), "well": workload("well")}
    server.pods = [pod("well", "there"), pod("run", "lost")]
    looking.look()
    assert server.patches == [
        ("run", {"metadata": {"annotations": {requeue.MARK: "true"}}, "spec": {"active": False}})
    ]
    server.pods = []  # Kueue suspends the object, and its operator deletes the pods
    looking.look()
    assert len(server.patches) == 1, "it still holds its nodes"
    server.workloads["run"]["status"] = {}
    looking.look()
    looking.look()
    assert server.patches[1:] == [
        ("run", {"metadata": {"annotations": {requeue.MARK: None}}, "spec": {"active": True}})
    ]
    assert "team-a/run: its node lost is gone; evicting it" in capsys.readouterr().out
    assert server.tokens == {"Bearer secret"}


def test_run_that_a_person_has_stopped_stays_stopped(
    server: Server, looking: requeue.Requeue
) -> None:
    server.workloads = {"stopped": workload("stopped", admitted=False)}
    looking.look()
    assert server.patches == []


def test_run_that_was_deleted_meanwhile_is_no_error(
    server: Server, looking: requeue.Requeue
) -> None:
    server.pods = [pod("gone", "lost")]
    looking.look()
    assert server.patches == []


def test_ends_when_nobody_answers(
    server: Server, looking: requeue.Requeue, capsys: pytest.CaptureFixture[str]
) -> None:
    server.close()
    assert requeue.run(looking, give_up_s=0.0, poll_s=0.0) == 1
    assert "requeue: URLError" in capsys.readouterr().out
