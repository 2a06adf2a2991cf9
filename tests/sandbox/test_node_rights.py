"""Process nodes have the rights of kubelets, and the agent around them less."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.certificates import Identity
from sandbox.node import credentials
from sandbox.node.api import ApiError, ApiUnavailable, Client, node_path, object_path, pod_path
from sandbox.node.credentials import NodeClient
from sandbox.rbac import AGENT, CLOUD, IDENTITIES, PROVISIONER
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import Kit, serving

pytestmark = [pytest.mark.sandbox, pytest.mark.core, pytest.mark.long(10)]

USED, UNUSED = "used", "unused"


@pytest.fixture(scope="module")
def kit(cluster: Cluster) -> Iterator[Kit]:
    with serving(cluster, "rights") as served:
        for name in (USED, UNUSED):
            served.create("secrets", name, {"stringData": {"key": name}})
        secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": USED, "key": "key"}}}
        for number in range(2):
            main = {"command": ["sh", "-c", "echo up; sleep 600"]}
            env = {"env": [secret]} if number == 0 else {}
            served.run(
                f"pod-{number}", node=number, main=main | env, automountServiceAccountToken=True
            )
            served.await_line(f"pod-{number}", "up")
        yield served


@pytest.fixture(scope="module")
def node(kit: Kit) -> Client:
    return NodeClient(kit.cluster.state.kubeconfig_of(AGENT), kit.nodes[0])


def _path(kit: Kit, kind: str, name: str = "") -> str:
    return object_path("/api/v1", kit.namespace, kind, name)


def _pod_on(node: str) -> dict[str, Any]:
    container = {"name": "main", "image": "sandbox.trainyard.dev/host"}
    spec = {"nodeName": node, "containers": [container]}
    return {"metadata": {"name": "forbidden"}, "spec": spec}


LABELS = {"metadata": {"labels": {"changed": "yes"}}}


def test_a_node_reads_the_secrets_of_its_pods_only(kit: Kit, node: Client) -> None:
    assert node.get(_path(kit, "secrets", USED))["metadata"]["name"] == USED
    for name in (UNUSED, ""):
        _refused(lambda name=name: node.get(_path(kit, "secrets", name)))
    other = NodeClient(kit.cluster.state.kubeconfig_of(AGENT), kit.nodes[1])
    _refused(lambda: other.get(_path(kit, "secrets", USED)))


def test_a_node_changes_itself_only(kit: Kit, node: Client) -> None:
    mine, other = kit.nodes
    node.patch(node_path(mine), LABELS)
    _refused(lambda: node.patch(node_path(other), LABELS))
    _refused(lambda: node.patch(node_path(other, "status"), {"status": {"phase": "Running"}}))
    _refused(
        lambda: node.patch(
            node_path(mine), {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
        )
    )
    _refused(lambda: node.delete(node_path(mine)))


def test_a_node_reports_and_deletes_its_own_pods_only(kit: Kit, node: Client) -> None:
    selector = {"fieldSelector": f"spec.nodeName={kit.nodes[0]}"}
    found = node.get("/api/v1/pods", **selector)["items"]
    assert {pod["spec"]["nodeName"] for pod in found} == {kit.nodes[0]}
    _refused(lambda: node.get("/api/v1/pods"))
    other = pod_path(kit.namespace, "pod-1")
    _refused(lambda: node.patch(f"{other}/status", {"status": {"message": "lost"}}))
    _refused(lambda: node.delete(other))
    for name in kit.nodes:
        _refused(lambda name=name: node.create(_path(kit, "pods"), _pod_on(name)))


def test_a_node_gets_tokens_of_its_pods_only(kit: Kit, node: Client) -> None:
    def ask(name: str) -> None:
        bound = {"kind": "Pod", "apiVersion": "v1", "name": name}
        bound["uid"] = kit.pod(name)["metadata"]["uid"]
        request = {"spec": {"boundObjectRef": bound}}
        node.create(f"{_path(kit, 'serviceaccounts', 'default')}/token", request)

    ask("pod-0")
    _refused(lambda: ask("pod-1"))


@pytest.mark.parametrize("identity", IDENTITIES)
def test_the_programs_around_nodes_read_no_secrets_and_create_no_pods(
    kit: Kit, identity: str
) -> None:
    client = Client(kit.cluster.state.kubeconfig_of(identity))
    _refused(lambda: client.get(_path(kit, "secrets", USED)))
    _refused(lambda: client.get(_path(kit, "configmaps")))
    _refused(lambda: client.create(_path(kit, "pods"), _pod_on(kit.nodes[0])))
    _refused(lambda: client.create(f"{_path(kit, 'serviceaccounts', 'default')}/token", {}))
    if identity != CLOUD:
        _refused(lambda: client.patch(node_path(kit.nodes[0]), LABELS))
    if identity != PROVISIONER:
        _refused(lambda: client.get("/api/v1/persistentvolumes"))


@pytest.mark.parametrize("organization", ["system:masters", ""])
def test_the_agent_gets_certificates_of_nodes_only(
    kit: Kit, organization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "SIGN_TIMEOUT_S", 1.0)
    client = Client(kit.cluster.state.kubeconfig_of(AGENT))
    wanted = dataclasses.replace(credentials.node_identity("any"), organization=organization)
    with pytest.raises((ApiError, ApiUnavailable), match=r"not signed in|forbidden"):
        credentials.request_certificate(client, wanted)
    admin = Identity("admin", "trainyard-admin", organization)
    signer = "kubernetes.io/kube-apiserver-client"
    with pytest.raises((ApiError, ApiUnavailable), match=r"not signed in|forbidden"):
        credentials.request_certificate(client, admin, signer)


def _refused(request: Any) -> None:
    with pytest.raises(ApiError) as caught:
        request()
    assert caught.value.status == 403
