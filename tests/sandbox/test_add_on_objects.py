"""Objects of controllers without a chart, against a real API server: it takes them, and what people write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from infra.addons import mpi_operator, training_operator
from infra.addons.component import namespace
from infra.addons.model import Installable
from infra.addons.registry import ADD_ONS
from infra.kubernetes.objects import Manifest
from sandbox.cluster import ClusterError
from tests.golden import manifest_files
from tests.golden.conftest import read_folder
from tests.sandbox.node_kit import until

if TYPE_CHECKING:
    from tests.sandbox.conftest import Cluster

pytestmark = [pytest.mark.sandbox, pytest.mark.long(12)]

IMAGE = "registry.example.com/operator@sha256:" + "1" * 64
PLANS = (
    mpi_operator.plan(IMAGE, IMAGE),
    training_operator.plan(IMAGE),
)
APIS = (
    "customresourcedefinition/mpijobs.kubeflow.org",
    "customresourcedefinition/pytorchjobs.kubeflow.org",
)
TEAM = "team-add-ons"


def manifests(plan: Installable) -> list[Manifest]:
    home = ADD_ONS[plan.add_on].namespace
    return [namespace(home, [plan]), *plan.before, *plan.objects]


def applied(cluster: Cluster, objects: list[Manifest], *more: str) -> list[Any]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    shown = cluster.kubectl("apply", "--server-side", "-o", "json", *more, "-f", "-", stdin=text)
    found = json.loads(shown)
    return found["items"] if found["kind"] == "List" else [found]


def run(launcher: str) -> Manifest:
    """The run's own object in a golden file, moved to a namespace without admission policies."""
    documents = manifest_files.expanded(read_folder("launchers"))[launcher]
    (found,) = [d for d in documents if d["kind"].lower() == launcher]
    labels = {k: v for k, v in found["metadata"]["labels"].items() if "kueue" not in k}
    found["metadata"] = {"name": "example", "namespace": TEAM, "labels": labels}
    return found


def _kueue_answers(cluster: Cluster) -> bool:
    container = {"name": "main", "image": IMAGE}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "example", "namespace": "default"},
        "spec": {"containers": [container]},
    }
    try:
        applied(cluster, [pod], "--dry-run=server")
    except ClusterError as error:
        if "webhook" in str(error):
            return False
        raise
    return True


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with both APIs and all of their controllers' objects; no pods run, because there is no node."""
    for plan in PLANS:
        applied(cluster, manifests(plan))
    until(lambda: _kueue_answers(cluster), "Kueue's webhook of pods is served")
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=120s", *APIS)
    cluster.kubectl("create", "namespace", TEAM)
    try:
        yield cluster
    finally:
        homes = [ADD_ONS[plan.add_on].namespace for plan in PLANS]
        hook = "validatingwebhookconfiguration/validator.training-operator.kubeflow.org"
        cluster.kubectl("delete", "--wait=false", hook, *APIS)
        for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"):
            names = [m["metadata"]["name"] for p in PLANS for m in p.before if m["kind"] == kind]
            cluster.kubectl("delete", "--wait=false", kind, *names)
        cluster.kubectl("delete", "--wait=false", "namespace", TEAM, *homes)


def test_api_server_accepts_every_object_unchanged(
    installed: Cluster,
) -> None:
    for plan in PLANS:
        objects = manifests(plan)
        found = applied(installed, objects, "--dry-run=server")
        assert [one["kind"] for one in found] == [one["kind"] for one in objects]


def test_rendered_mpijob_is_accepted_and_defaulted(
    installed: Cluster,
) -> None:
    (job,) = applied(installed, [run("mpijob")], "--dry-run=server")
    assert job["spec"]["launcherCreationPolicy"] in ("AtStartup", "WaitForWorkersReady")
    assert job["spec"]["mpiImplementation"] == "OpenMPI"
    assert job["spec"]["mpiReplicaSpecs"].keys() == run("mpijob")["spec"]["mpiReplicaSpecs"].keys()


@pytest.mark.parametrize(
    ("change", "refusal"),
    [({"slotsPerWorkers": 2}, "unknown field"), ({"mpiImplementation": "MPICH2"}, "Unsupported")],
)
def test_mistakes_in_an_mpijob_are_refused(
    installed: Cluster, change: dict[str, Any], refusal: str
) -> None:
    job = run("mpijob")
    job["spec"] |= change
    with pytest.raises(ClusterError, match=refusal):
        applied(installed, [job], "--dry-run=server", "--validate=strict")


def test_pytorchjob_is_sent_to_its_controllers_webhook(installed: Cluster) -> None:
    """No server answers the webhook here: invalid objects must not be admitted while it is away."""
    with pytest.raises(ClusterError, match="training-operator"):
        applied(installed, [run("pytorchjob")], "--dry-run=server")


def test_controller_pods_satisfy_the_restricted_pod_security_standard(installed: Cluster) -> None:
    deployments = [(plan, m) for plan in PLANS for m in plan.objects if m["kind"] == "Deployment"]
    assert len(deployments) == 3  # two of MPI Operator: it, and what requeues its runs
    for plan, deployment in deployments:
        home = ADD_ONS[plan.add_on].namespace
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "example", "namespace": home},
            "spec": deployment["spec"]["template"]["spec"],
        }
        (made,) = applied(installed, [pod], "--dry-run=server")
        assert made["metadata"]["name"] == "example"
