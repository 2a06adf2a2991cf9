"""`kubectl logs` on process nodes, and authorization of the node API."""

from __future__ import annotations

import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from sandbox.node.api import node_path
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import Kit, serving

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def kit(cluster: Cluster) -> Iterator[Kit]:
    with serving(cluster, "logs", nodes=1) as served:
        yield served


def test_kubectl_follows_a_log_to_the_end_of_the_container(kit: Kit) -> None:
    main = {
        "command": ["sh", "-c", "echo one; until test -e /v/go; do sleep 0.05; done; echo two"],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    kit.run("followed", main=main, volumes=[{"name": "v", "emptyDir": {}}])
    pod = kit.await_line("followed", "one")
    kit.await_phase("followed", "Running")
    command = ["kubectl", "-n", kit.namespace, "logs", "-f", "followed"]
    with subprocess.Popen(
        command, env=kit.cluster.env, stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "one\n"
        (kit.folder(pod).volumes / "v" / "go").touch()
        assert follower.stdout.read() == "two\n"
        assert follower.wait(30) == 0


def test_kubectl_reads_part_of_a_log(kit: Kit) -> None:
    kit.run("parts", "for i in $(seq 1 2000); do echo line $i; done")
    kit.await_phase("parts", "Succeeded")
    assert kit.kubectl("logs", "parts").stdout.count("\n") == 2000
    assert kit.kubectl("logs", "parts", "--tail=2").stdout == "line 1999\nline 2000\n"
    assert kit.kubectl("logs", "parts", "--limit-bytes=9").stdout == "line 1\nli"
    stamped = kit.kubectl("logs", "parts", "--timestamps", "--tail=1").stdout
    assert stamped.startswith("20") and stamped.endswith("Z line 2000\n")
    assert kit.kubectl("logs", "parts", "--since=1h", "--tail=1").stdout == "line 2000\n"
    assert kit.kubectl("logs", "parts", "--since-time=2100-01-01T00:00:00Z").stdout == ""


def test_unsupported_log_requests_return_an_error(kit: Kit) -> None:
    kit.run("silent", "sleep 600", node=0)
    kit.await_phase("silent", "Running")
    previous = kit.kubectl("logs", "silent", "--previous")
    assert previous.returncode and "previous terminated container" in previous.stderr
    status, text = _ask(kit, "/attach/a/b/c", "apiserver-kubelet-client")
    assert status == 501 and "attach is not implemented on process nodes" in text
    kit.delete("silent", 1)


def test_node_api_accepts_only_the_api_server(kit: Kit) -> None:
    path = "/containerLogs/a/b/c"
    with pytest.raises((ssl.SSLError, urllib.error.URLError, ConnectionError)):
        _ask(kit, path, None)
    assert _ask(kit, path, "admin")[0] == 403
    assert _ask(kit, path, "apiserver-kubelet-client")[0] == 400  # no such pod, but it may ask


def _ask(kit: Kit, path: str, pair: str | None) -> tuple[int, str]:
    """Request a path of the node with one of the cluster's certificates; return (status, text)."""
    endpoint = kit.client.get(node_path(kit.nodes[0]))["status"]["daemonEndpoints"]
    url = f"https://127.0.0.1:{endpoint['kubeletEndpoint']['Port']}{path}"
    pki = kit.cluster.state.pki
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    if pair:
        context.load_cert_chain(pki / f"{pair}.crt", pki / f"{pair}.key")
    try:
        with urllib.request.urlopen(url, context=context, timeout=10) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
