"""Pods on process nodes find each other by name, and train together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox import paths
from sandbox.node.api import Json
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import Kit, serving, until
from training.source import digest

pytestmark = pytest.mark.sandbox

ALL_REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print("sum", int(total.item()), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2"


@pytest.fixture(scope="module")
def kit(cluster: Cluster) -> Iterator[Kit]:
    with serving(cluster, "names") as served:
        yield served


def _headless(kit: Kit, name: str) -> None:
    spec = {"clusterIP": "None", "selector": {"app": name}, "publishNotReadyAddresses": True}
    kit.create("services", name, {"spec": spec})


def test_pods_of_a_headless_service_resolve_each_other_by_name(kit: Kit) -> None:
    _headless(kit, "web")
    script = """
until getent hosts b.web; do sleep 0.05; done >/dev/null; echo found
getent hosts b.web; getent hosts b.web.test-names.svc.cluster.local; hostname; hostname -i
while getent hosts b.web >/dev/null; do sleep 0.05; done; echo lost
"""
    labels = {"labels": {"app": "web"}}
    kit.run("web-a", script, metadata=labels, hostname="a", subdomain="web")
    kit.await_phase("web-a", "Running")
    kit.run("web-b", "sleep 600", node=1, metadata=labels, hostname="b", subdomain="web")
    other = kit.await_phase("web-b", "Running")
    kit.await_line("web-a", "found")
    kit.delete("web-b", 1)
    pod = kit.await_phase("web-a", "Succeeded")
    lines = kit.log(pod).splitlines()
    theirs, own = other["status"]["podIP"], pod["status"]["podIP"]
    assert theirs != own and {theirs[:6], own[:6]} == {"127.1."}
    assert [line.split()[0] for line in lines[1:3]] == [theirs, theirs]
    assert lines[3:] == ["a", own, "lost"]


def test_pod_name_does_not_resolve_in_another_namespace(kit: Kit, cluster: Cluster) -> None:
    _headless(kit, "near")
    labels = {"labels": {"app": "near"}}
    kit.run("near-a", "sleep 600", metadata=labels, hostname="a", subdomain="near")
    kit.await_phase("near-a", "Running")
    with serving(cluster, "far", nodes=1) as far:
        far.run("stranger", "getent hosts a.near || echo unknown")
        assert far.log(far.await_phase("stranger", "Succeeded")) == "unknown\n"
    kit.run("friend", "getent hosts a.near >/dev/null && echo known")
    assert kit.log(kit.await_phase("friend", "Succeeded")) == "known\n"
    kit.delete("near-a", 1)


@pytest.mark.long(30)
def test_jobset_of_two_pods_completes_a_gloo_all_reduce(kit: Kit) -> None:
    kit.create("configmaps", "program", {"data": {"all_reduce.py": ALL_REDUCE}})
    kit.create("jobsets", "duo", _jobset(kit), JOBSETS)

    def done() -> bool:
        item = kit.client.get(f"{JOBSETS}/namespaces/{kit.namespace}/jobsets/duo")
        return bool(item.get("status", {}).get("terminalState") == "Completed")

    until(done, "the JobSet is complete")
    pods = kit.client.get(
        f"/api/v1/namespaces/{kit.namespace}/pods",
        labelSelector="jobset.sigs.k8s.io/jobset-name=duo",
    )["items"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    assert [kit.log(pod, "trainer").count("sum 3 of 2") for pod in pods] == [1, 1]


def _jobset(kit: Kit) -> Json:
    reference = f"sandbox.trainyard.dev/trainer@sha256:{digest(paths.PROJECT)}"
    trainer = {
        "name": "trainer",
        "image": reference,
        "command": ["torchrun", "--nnodes=2", "--nproc-per-node=1", "--rdzv-id=duo"],
        "args": ["--rdzv-backend=c10d", "--rdzv-endpoint=duo-w-0-0.duo:29477", "/p/all_reduce.py"],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "volumeMounts": [
            {"name": "program", "mountPath": "/p"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": {"nodeAffinity": _one_of(kit.nodes)},
        "containers": [trainer],
        "volumes": [
            {"name": "program", "configMap": {"name": "program"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ],
    }
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {"spec": pod}}
    job["completionMode"] = "Indexed"
    replicated = {"name": "w", "replicas": 1, "template": {"spec": job}}
    named = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return {**named, "spec": {"replicatedJobs": [replicated]}}


def _one_of(nodes: list[str]) -> Json:
    match = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
    terms = [{"matchExpressions": [match]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
