"""The API server's way to Services and nodes: a Service's ready pods and the agent's endpoint, nothing else."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from sandbox import paths
from sandbox.node.api import Client, Json
from sandbox.node.egress import SOCKET, Egress, kubelet_endpoints
from sandbox.node.hosts import HostTable, Peer
from sandbox.node.records import PodFolder

DEADLINE_S = 30.0
CLUSTER_IP = "10.0.0.9"
POD_IP = "127.1.254.254"
POD = Peer(
    namespace="kueue-system",
    name="manager-1",
    ip=POD_IP,
    hostname="manager-1",
    subdomain="",
    labels={"app": "kueue"},
    ready=True,
    created="2026-01-01T00:00:00Z",
)


def _greet(server: socket.socket) -> None:
    """Greet every client that has said something, until the server is shut down."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.sendall(b"hello " + connection.recv(100))


@contextlib.contextmanager
def _server(host: str) -> Iterator[int]:
    with socket.create_server((host, 0)) as server:
        threading.Thread(target=_greet, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def served() -> Iterator[int]:
    with _server(POD_IP) as port:
        yield port


def _service(port: int, namespace: str = POD.namespace) -> Json:
    ports = [{"port": 443, "targetPort": port}, {"port": 444, "targetPort": "webhook"}]
    spec = {"clusterIP": CLUSTER_IP, "selector": dict(POD.labels), "ports": ports}
    return {"metadata": {"uid": "s", "name": "webhook", "namespace": namespace}, "spec": spec}


def _answer(home: Path, target: str) -> bytes:
    """What the proxy, and then the server behind it, answers to a connection to `target`."""
    folder = os.open(home, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(DEADLINE_S)
            client.connect(f"/proc/self/fd/{folder}/{SOCKET}")
            client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            head = client.recv(100)
            if b" 200 " in head:
                client.sendall(b"webhook")
                return client.recv(100)
            return head[9:12]
    finally:
        os.close(folder)


def _proxy(
    home: Path,
    service: Json,
    peer: Peer,
    node_port: int = 1,
    kubelets: Collection[tuple[str, int]] = (),
) -> None:
    hosts = HostTable()
    hosts.service("ADDED", service)
    hosts.put("u", peer, PodFolder(home / "pod", home / "logs"))
    Egress(paths.State(home), hosts, node_port, lambda: kubelets).start()


def test_a_services_address_leads_to_its_ready_pod(tmp_path: Path, served: int) -> None:
    home = tmp_path / ("long-" * 30)
    home.mkdir()
    peer = replace(POD, ports={"webhook": served})
    _proxy(home, _service(served), peer)
    assert _answer(home, f"{CLUSTER_IP}:443") == b"hello webhook"
    assert _answer(home, f"{CLUSTER_IP}:444") == b"hello webhook"
    assert (home / SOCKET).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "target", ["{pod}:{port}", "127.0.0.1:{port}", "10.0.0.8:443", "x", "[::1"]
)
def test_other_addresses_are_refused(tmp_path: Path, served: int, target: str) -> None:
    _proxy(tmp_path, _service(served), POD)
    assert _answer(tmp_path, target.format(pod=POD_IP, port=served)) in (b"503", b"")


def test_a_pod_that_is_not_ready_is_asked_only_if_no_other_is(tmp_path: Path, served: int) -> None:
    hosts, folder = HostTable(), PodFolder(tmp_path / "pod", tmp_path / "logs")
    hosts.service("ADDED", _service(served))
    hosts.put("starting", replace(POD, ready=False, ip="127.1.254.252"), folder)
    assert hosts.backends(CLUSTER_IP, 443) == [("127.1.254.252", served)]
    hosts.put("ready", POD, folder)
    assert hosts.backends(CLUSTER_IP, 443) == [(POD_IP, served)]


def test_pods_of_another_namespace_or_service_are_not_asked(tmp_path: Path, served: int) -> None:
    for name, peer, service in (
        ("foreign", POD, _service(served, "team-research")),
        ("other", replace(POD, labels={"app": "other"}), _service(served)),
    ):
        (tmp_path / name).mkdir()
        _proxy(tmp_path / name, service, peer)
        assert _answer(tmp_path / name, f"{CLUSTER_IP}:443") == b"503"


def test_the_kubelet_of_a_node_beside_the_agent_is_reached(tmp_path: Path, served: int) -> None:
    _proxy(tmp_path, _service(1), POD, kubelets={(POD_IP, served)})
    assert _answer(tmp_path, f"{POD_IP}:{served}") == b"hello webhook"
    assert _answer(tmp_path, f"{POD_IP}:{served + 1}") == b"503"


def test_nodes_on_loopback_are_the_agents() -> None:
    def node(address: str) -> Json:
        addresses = [{"type": "InternalIP", "address": address}]
        port = {"kubeletEndpoint": {"Port": 10250}}
        return {"status": {"addresses": addresses, "daemonEndpoints": port}}

    client = create_autospec(Client, instance=True)
    client.get.return_value = {"items": [node("127.0.0.1"), node("192.0.2.7"), {}]}
    assert kubelet_endpoints(client) == {("192.0.2.7", 10250)}
