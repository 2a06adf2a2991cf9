"""Every run serves metrics at the platform's port, open to Prometheus only."""

from __future__ import annotations

from typing import Any

import pytest

from infra.domain import naming
from infra.tenancy import network_policies
from tests.golden.example_runs import LAUNCHERS, platform, run_of
from tests.unit.training.pods import containers
from training.job import manifests
from trainyard import contract

PORT = {"name": naming.METRICS_PORT_NAME, "containerPort": naming.METRICS_PORT}
OWN_ADDRESS = {"fieldRef": {"fieldPath": "status.podIP"}}


def _env(container: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_worker_serves_metrics_on_its_pod_address(launcher: str) -> None:
    found = containers(manifests(run_of(launcher), platform(), "c" * 40))
    workers = [one for one in found if naming.GPU in one["resources"]["limits"]]
    assert workers
    for worker in workers:
        assert [{"protocol": "TCP", **one} for one in worker["ports"]] == [
            {"protocol": "TCP", **PORT}
        ]
        assert _env(worker)[contract.METRICS_ADDRESS_ENV] == OWN_ADDRESS
        assert _env(worker)[contract.METRICS_PORT_ENV] == str(naming.METRICS_PORT)


def test_the_mpirun_launcher_pod_has_no_port() -> None:
    found = containers(manifests(run_of("mpijob"), platform(), "c" * 40))
    (launcher,) = [one for one in found if one["name"] == "launcher"]
    assert "ports" not in launcher


def test_only_prometheus_is_let_in_and_only_on_that_port() -> None:
    (policy,) = [
        one
        for one in network_policies.policies("research", ["10.0.0.0/16"])
        if one["metadata"]["name"] == "allow-monitoring"
    ]
    namespace = {"kubernetes.io/metadata.name": naming.MONITORING_NAMESPACE}
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [
        {
            "from": [{"namespaceSelector": {"matchLabels": namespace}}],
            "ports": [{"protocol": "TCP", "port": naming.METRICS_PORT}],
        }
    ]
    (chosen,) = policy["spec"]["podSelector"]["matchExpressions"]
    assert chosen == {"key": naming.RUN_ID, "operator": "Exists"}
