"""Claims of the shared StorageClass are folders, which are deleted with their claims."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.node.api import ApiError, Json
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import Kit, serving, until

pytestmark = pytest.mark.sandbox

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@pytest.fixture(scope="module")
def kit(cluster: Cluster) -> Iterator[Kit]:
    with serving(cluster, "volumes") as served:
        yield served
        for policy in ("Delete", "Retain"):
            served.client.delete(f"{CLASSES}/{_class(policy)}")


def _class(policy: str) -> str:
    return f"test-{policy.lower()}"


def _claim(kit: Kit, name: str, policy: str) -> Json:
    body = {
        "metadata": {"name": _class(policy)},
        "provisioner": "sandbox.trainyard.dev/shared",
        "reclaimPolicy": policy,
    }
    spec = {
        "storageClassName": _class(policy),
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "5Ti"}},
    }
    kit.create("persistentvolumeclaims", name, {"spec": spec})
    try:
        kit.client.create(CLASSES, body)  # after the claim: it has to wait for its class
    except ApiError as error:
        assert error.conflict
    path = f"/api/v1/namespaces/{kit.namespace}/persistentvolumeclaims/{name}"

    def bound() -> Json | None:
        claim = kit.client.get(path)
        return claim if claim["status"]["phase"] == "Bound" else None

    return until(bound, f"{name} is bound")


def _mounts(claim: str, **mount: object) -> dict[str, object]:
    source = {"persistentVolumeClaim": {"claimName": claim}}
    return {
        "volumes": [{"name": "v", **source}],
        "mount": [{"name": "v", "mountPath": "/data", **mount}],
    }


def _run(kit: Kit, name: str, script: str, claim: str, node: int = 0, **mount: object) -> str:
    parts = _mounts(claim, **mount)
    main = {"command": ["sh", "-c", script], "volumeMounts": parts["mount"]}
    kit.run(name, main=main, volumes=parts["volumes"], node=node)
    pod = kit.await_pod(name, lambda p: p["status"]["phase"] in ("Succeeded", "Failed"), "ended")
    return kit.log(pod)


def test_pods_on_two_nodes_share_a_claim_whose_deletion_removes_the_data(kit: Kit) -> None:
    claim = _claim(kit, "shared", "Delete")
    assert claim["status"]["capacity"]["storage"] == "5Ti"
    folder = kit.cluster.state.volumes / kit.namespace / "shared"
    _run(kit, "writer", "echo from 0 > /data/note", "shared")
    assert _run(kit, "reader", "cat /data/note", "shared", node=1) == "from 0\n"
    assert "Read-only" in _run(kit, "refused", "touch /data/x 2>&1", "shared", readOnly=True)
    assert _run(kit, "sub", "touch /data/in; ls /data", "shared", subPath="a/b") == "in\n"
    assert (folder / "a" / "b" / "in").exists()
    for name in ("writer", "reader", "refused", "sub"):
        kit.delete(name)
    kit.client.delete(f"/api/v1/namespaces/{kit.namespace}/persistentvolumeclaims/shared")
    until(lambda: not folder.exists(), "the folder is gone")
    volume = f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}"

    def removed() -> bool:
        try:
            kit.client.get(volume)
            return False
        except ApiError as error:
            return error.not_found

    until(removed, "the volume is gone")


def test_a_retained_volume_keeps_its_data_when_its_claim_is_deleted(kit: Kit) -> None:
    claim = _claim(kit, "kept", "Retain")
    folder = kit.cluster.state.volumes / kit.namespace / "kept"
    _run(kit, "keeper", "echo data > /data/f", "kept")
    kit.delete("keeper")
    kit.client.delete(f"/api/v1/namespaces/{kit.namespace}/persistentvolumeclaims/kept")
    volume = f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}"
    until(lambda: kit.client.get(volume)["status"]["phase"] == "Released", "released")
    assert (folder / "f").read_text() == "data\n"
    kit.client.delete(volume)
