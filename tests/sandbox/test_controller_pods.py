"""Charts of controllers as stacks install them: their pods on a process node, their webhooks through Services."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.domain import naming
from sandbox.cluster import ClusterError
from sandbox.node.records import Attempt, pod_folder
from sandbox.system_node import NODE as NODE_OF_CONTROLLERS
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import HOST, node_manifest, platform_in, until

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600), pytest.mark.long(30)]

NODE = "controlled-0"
POOL = "controlled"
QUEUE = "research"
PORTS = {8081, 8082, 8443, 9443}
"""Ports on which Kueue listens; JobSet on three of them."""


def _objects() -> list[dict[str, Any]]:
    node = node_manifest(NODE)
    node["metadata"]["labels"][naming.POOL] = POOL
    return [
        node,
        _queueing("ResourceFlavor", "worker", {"nodeLabels": {naming.HOSTNAME: NODE}}),
        _queueing("ClusterQueue", QUEUE, _quota()),
        _queueing("LocalQueue", QUEUE, {"clusterQueue": QUEUE}, namespace="default"),
    ]


def _quota(**limits: str) -> dict[str, Any]:
    flavor = {"name": "worker", "resources": [{"name": "cpu", "nominalQuota": "4", **limits}]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    return {"namespaceSelector": {}, "resourceGroups": [group]}


def _queueing(kind: str, name: str, spec: dict[str, Any], **about: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, **about}
    return {"apiVersion": naming.KUEUE_API, "kind": kind, "metadata": metadata, "spec": spec}


def _jobset(name: str, script: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": HOST, "command": ["sh", "-c", script]}
    container["resources"] = {"requests": {"cpu": "1"}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {naming.QUEUE_NAME: QUEUE}},
        "spec": {"replicatedJobs": [{"name": "worker", "template": {"spec": job}}]},
    }


@pytest.fixture(scope="module")
def queued(cluster: Cluster) -> Iterator[Cluster]:
    made = {"default": "jobsets"}
    with platform_in(cluster, _objects(), (POOL,), (QUEUE,), made) as ready:
        yield ready


def test_a_jobset_is_admitted_and_runs(queued: Cluster) -> None:
    made = _jobset("gang", 'test "$JOB_COMPLETION_INDEX" -lt 2')
    queued.kubectl("create", "-f", "-", stdin=json.dumps(made))
    queued.kubectl("wait", "jobset/gang", "--for=condition=Completed", "--timeout=180s")
    (workload,) = json.loads(queued.kubectl("get", "workloads", "-o", "json"))["items"]
    held = {one["type"]: one["status"] for one in workload["status"]["conditions"]}
    assert held["Admitted"] == held["Finished"] == "True"


def test_webhooks_conversions_and_aggregated_apis_answer(queued: Cluster) -> None:
    wrong = _queueing("ClusterQueue", "wrong", _quota(borrowingLimit="1"))
    with pytest.raises(ClusterError, match="must be nil when cohort is empty"):
        queued.kubectl("create", "-f", "-", stdin=json.dumps(wrong))
    with pytest.raises(ClusterError, match="JobSet name is too long"):
        queued.kubectl("create", "-f", "-", stdin=json.dumps(_jobset("x" * 60, "true")))
    older = queued.kubectl("get", f"clusterqueues.v1beta1.kueue.x-k8s.io/{QUEUE}", "-o", "json")
    assert json.loads(older)["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    path = f"/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/{QUEUE}/pendingworkloads"
    until(lambda: _answers(queued, path), "the visibility API answers")


def _answers(cluster: Cluster, path: str) -> bool | None:
    try:
        return "items" in json.loads(cluster.kubectl("get", "--raw", path)) or None
    except ClusterError:
        return None


def _controllers(cluster: Cluster) -> list[dict[str, Any]]:
    listed = cluster.kubectl("get", "pods", "-A", "-o", "json")
    found: list[dict[str, Any]] = json.loads(listed)["items"]
    return [one for one in found if one["spec"].get("nodeName") == NODE_OF_CONTROLLERS]


def test_killed_controllers_come_back_and_answer(queued: Cluster) -> None:
    killed = [_newest_attempt(queued, pod) for pod in _controllers(queued)]
    assert len(killed) == 2 and all(attempt.signal(signal.SIGKILL) for attempt in killed)
    until(lambda: all(attempt.exit() for attempt in killed) or None, "both have ended")
    until(lambda: _accepts(queued), "both webhooks answer again")


def _newest_attempt(cluster: Cluster, pod: dict[str, Any]) -> Attempt:
    (container,) = pod["spec"]["containers"]
    return pod_folder(cluster.state, pod).attempts(container["name"])[-1]


def _accepts(cluster: Cluster) -> bool | None:
    queue = _queueing("ClusterQueue", "again", _quota())
    listed = {"apiVersion": "v1", "kind": "List", "items": [_jobset("again", "true"), queue]}
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(listed))
    except ClusterError:
        return None
    return True


def test_controllers_listen_on_the_address_of_their_pod_only(cluster: Cluster) -> None:
    pods = _controllers(cluster)
    own = {one["status"]["podIP"] for one in pods}
    assert len(own) == len(pods) == 2
    found = [
        (_address(host), int(port, 16))
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        for host, port in [line.split()[1].split(":")]
        if line.split()[3] == "0A"
    ]
    assert {port for host, port in found if host in own} == PORTS


def _address(text: str) -> str:
    """The IPv4 address in a hexadecimal one, mapped or not."""
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(text[-8:])))


def test_accounts_of_controllers_have_no_other_rights_than_their_charts(cluster: Cluster) -> None:
    for account in ("kueue-system:kueue-controller-manager", "jobset-system:jobset-controller"):
        account = f"--as=system:serviceaccount:{account}"
        with pytest.raises(ClusterError):
            cluster.kubectl("auth", "can-i", "delete", "nodes", account)
