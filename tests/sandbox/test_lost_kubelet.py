"""A kubelet that stops under a running gang: its pod stays Terminating, `why` says so, and the remedy works."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sandbox import process
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until
from tests.sandbox.ops_kit import WORK, Json, Live, Stage

pytestmark = [pytest.mark.sandbox, pytest.mark.long(170)]

STAGE = Stage(team="silence")


@contextmanager
def no_kubelet(cluster: Cluster) -> Iterator[None]:
    """All process nodes without heartbeats; what runs there runs on."""
    agent = process.load(cluster.state.pids / "node.json")
    assert agent
    os.kill(agent.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(agent.pid, signal.SIGCONT)


def test_pod_of_a_node_without_kubelet_is_named_until_its_node_is_deleted(live: Live) -> None:
    live.start("lost", WORK)
    live.await_symptom("lost", "running")
    (pod,) = live.pods("lost")
    node = pod["spec"]["nodeName"]
    uid = pod["metadata"]["uid"]
    with no_kubelet(live.cluster):
        seen: set[str] = set()

        def stuck() -> Json | None:
            answer = live.why("lost")
            seen.add(answer["headline"])
            return answer if answer["headline"].startswith("cannot go on") else None

        answer = until(stuck, "its pod cannot end", 480.0, every_s=1.0)
        assert f"has lost {node}: no kubelet reports from there" in seen
        assert answer["symptom"] == "lost-node"
        assert answer["headline"] == f"cannot go on: 1 pod cannot end on {node}"
        assert any(f"node/{node}: Ready is Unknown" in line for line in answer["evidence"])
        assert f"kubectl delete node {node}:" in answer["remedy"][0]
        live.cluster.kubectl("delete", "node", node)
        until(lambda: uid not in _uids(live), "its pod goes with the node", every_s=1.0)
    live.await_symptom("lost", "running")
    (again,) = live.pods("lost")
    assert again["spec"]["nodeName"] != node
    live.stop("lost")


def _uids(live: Live) -> set[str]:
    """Of all pods of the run, those that are being deleted included."""
    return {pod["metadata"]["uid"] for pod in live.pods("lost")}
