"""Quota and limits on the real API server: every pod counts with what it can use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.domain import naming
from infra.kubernetes import pod_security
from infra.sections.teams import QuotaConfig
from infra.tenancy import access, limits, team
from sandbox.cluster import ClusterError
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import HOST, until
from training.launchers import pod as pods

pytestmark = [pytest.mark.sandbox, pytest.mark.core, pytest.mark.long(14)]

TEAM = "quotas"
NAMESPACE = naming.namespace(TEAM)
QUOTA = QuotaConfig(cpu="4", memory="8Gi", gpus=2)
OVER = "exceeded quota: training"


def _container(name: str = "main", **requests: str) -> dict[str, Any]:
    amounts = {key.replace("gpu", naming.GPU): value for key, value in requests.items()}
    found = {"name": name, "image": HOST, "securityContext": pods.restricted()}
    return found | ({"resources": {"requests": amounts, "limits": amounts}} if amounts else {})


def _pod(*containers: dict[str, Any], name: str = "attempt", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "serviceAccountName": naming.SERVICE_ACCOUNT,
            "securityContext": pod_security.pod_security(),
            "containers": list(containers),
            # No node has this label, so nothing starts.
            "nodeSelector": {"quotas": "none"},
            **spec,
        },
    }


def _service(**spec: Any) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "attempt", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "any"}, "ports": ports, **spec},
    }


@pytest.fixture(scope="module")
def held(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a team's namespace, its quota and its limits; deleted at the end."""
    cluster.apply(team.namespace(TEAM), access.service_account(TEAM), *_guards())
    _await_quota(cluster)
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s")


def _guards() -> tuple[dict[str, Any], dict[str, Any]]:
    return limits.resource_quota(TEAM, QUOTA), limits.limit_range(TEAM)


def _await_quota(cluster: Cluster) -> None:
    """Wait until the quota has counted existing objects; until then it rejects everything."""

    def counted() -> bool:
        text = cluster.kubectl("get", "resourcequota", "training", "-n", NAMESPACE, "-o", "json")
        return bool(json.loads(text).get("status", {}).get("used"))

    until(counted, "the quota has counted")


def _try(cluster: Cluster, manifest: dict[str, Any]) -> dict[str, Any]:
    command = ["create", "--dry-run=server", "-o", "json", "-f", "-"]
    found: dict[str, Any] = json.loads(cluster.kubectl(*command, stdin=json.dumps(manifest)))
    return found


def _refused(cluster: Cluster, manifest: dict[str, Any], words: str) -> None:
    def refused() -> bool:
        try:
            _try(cluster, manifest)
        except ClusterError as error:
            return words in str(error)
        return False

    # Admission reads guards from a cache, which contains a restored guard a moment later.
    until(refused, f"refused: {words}")


def _accepted(cluster: Cluster, manifest: dict[str, Any]) -> None:
    def accepted() -> bool:
        try:
            return bool(_try(cluster, manifest))
        except ClusterError:
            return False

    until(accepted, "accepted")


def test_container_without_requests_counts_against_the_quota(held: Cluster) -> None:
    found = _try(held, _pod(_container()))
    requests = found["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "250m", "memory": "256Mi"}
    # Sixteen of them are 4 cores; seventeen are more than the team has.
    several = [_container(f"c{i}") for i in range(17)]
    _try(held, _pod(*several[:16]))
    _refused(held, _pod(*several), OVER)


@pytest.mark.parametrize(
    ("resource", "fits", "over"),
    [("cpu", "4", "5"), ("memory", "8Gi", "9Gi"), ("gpu", "2", "3")],
)
def test_each_resource_counts_against_the_quota(
    held: Cluster, resource: str, fits: str, over: str
) -> None:
    small = {"cpu": "1", "memory": "1Gi"}
    _accepted(held, _pod(_container(**(small | {resource: fits}))))
    _refused(held, _pod(_container(**(small | {resource: over}))), OVER)


@pytest.mark.parametrize(
    "outside",
    [
        {"type": "NodePort"},
        {"type": "LoadBalancer"},
        # It has no port on nodes, so only the quota of load balancers knows it.
        {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False},
    ],
)
def test_services_exposed_outside_the_cluster_are_rejected(
    held: Cluster, outside: dict[str, Any]
) -> None:
    _refused(held, _service(**outside), OVER)
    _accepted(held, _service(type="ClusterIP"))
    _accepted(held, _service(clusterIP="None"))


def test_dev_pods_are_counted_by_their_deadline_and_other_pods_are_not(held: Cluster) -> None:
    held.apply(limits.dev_pod_quota(TEAM, 1))
    with_deadline: Any = {"activeDeadlineSeconds": 3600}
    first = _pod(_container(), name="first-dev", **with_deadline)
    try:
        _accepted(held, first)
        held.kubectl("create", "-f", "-", stdin=json.dumps(first))
        _refused(held, _pod(_container(), **with_deadline), "exceeded quota: dev-pods")
        _accepted(held, _pod(_container()))
    finally:
        held.kubectl("delete", "pod", "first-dev", "-n", NAMESPACE, "--ignore-not-found")
        held.kubectl("delete", "resourcequota", "dev-pods", "-n", NAMESPACE)
