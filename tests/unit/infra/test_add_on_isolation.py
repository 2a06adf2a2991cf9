"""Pods of add-ons are reached by whom they need, and by nobody else."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import pytest

from infra.addons import cost_control, dcgm_exporter, device_plugin
from infra.addons.component import KUBE_SYSTEM
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.isolation import API_SERVER_PORTS
from infra.addons.registry import ADD_ONS
from infra.domain import naming
from infra.observability import component as observability
from infra.sections.programs import CostsConfig
from tests import committed
from tests.unit.infra.network_model import Peer, admits
from tests.unit.infra.test_add_ons import plans

API_SERVER: Final = Peer()
RUN: Final = Peer(namespace="team-research", labels={naming.RUN_ID: "hello-v1-01234567"})
PROMETHEUS: Final = Peer(
    namespace=naming.MONITORING_NAMESPACE, labels={"app.kubernetes.io/name": "prometheus"}
)
DNS: Final = Peer(namespace=KUBE_SYSTEM, labels={"k8s-app": "kube-dns"})

CALLED: Final = {
    "kueue": (9443, 8082),
    "jobset": (9443,),
    "kubeflowTrainer": (9443,),
    "trainingOperator": (9443,),
    "externalSecrets": (10250,),
    "policyController": (8443,),
    "volcano": (8443,),
}
"""Ports of each add-on that the API server calls: without one of them, every request that it reviews fails."""

SCRAPED: Final = {
    "kueue": 8443,
    "jobset": 8443,
    "gpuOperator": dcgm_exporter.METRICS_PORT,
    "dcgmExporter": dcgm_exporter.METRICS_PORT,
    "costs": naming.COSTS_METRICS_PORT,
}


@cache
def policies() -> dict[str, list[dict[str, Any]]]:
    """Return the network policies by add-on, of all that do not share the cluster's own namespace."""
    gpus = GpuNodesArgs(pools=(), operator_brings_driver=False, engine_on_nodes=False)
    costs = cost_control.plan(CostsConfig.model_construct(image=""), [], "", prometheus=True)
    found = [*plans(), dcgm_exporter.plan(gpus), device_plugin.plan(gpus), costs]
    made = {
        plan.add_on: [m for m in (*plan.before, *plan.objects) if m["kind"] == "NetworkPolicy"]
        for plan in found
        if ADD_ONS[plan.add_on].namespace != KUBE_SYSTEM
    }
    for record in committed.rendered("prod"):
        if record["type"].endswith(":NetworkPolicy") and "-gpuOperator-" in record["name"]:
            made.setdefault("gpuOperator", []).append(record["inputs"])
    # Its policies come with the monitors that Prometheus gets.
    made["kubePrometheusStack"] = observability.network_policies([naming.STEERING_NAMESPACE])
    return made


def _pod(add_on: str) -> Peer:
    return Peer(namespace=ADD_ONS[add_on].namespace, labels={"any": "pod"})


def _reached(add_on: str, peer: Peer, port: int) -> bool:
    return admits(policies()[add_on], _pod(add_on), peer, port, "Ingress")


def test_every_add_on_of_a_namespace_of_its_own_is_isolated() -> None:
    assert {*CALLED, *SCRAPED, "mpiOperator", "yunikorn", "devicePlugin"} <= set(policies())
    for add_on in policies():
        for port in (22, 80, 443, 8080, 8443, 9090, 9400, 9443):
            if port not in CALLED.get(add_on, ()):
                assert not _reached(add_on, RUN, port), (add_on, port)


@pytest.mark.parametrize(("add_on", "port"), [(a, p) for a, found in CALLED.items() for p in found])
def test_the_api_server_reaches_webhooks_and_nothing_else(add_on: str, port: int) -> None:
    assert _reached(add_on, API_SERVER, port)
    assert not _reached(add_on, API_SERVER, 12345)


@pytest.mark.parametrize("add_on", SCRAPED)
def test_prometheus_reaches_metrics_and_a_run_does_not(add_on: str) -> None:
    assert _reached(add_on, PROMETHEUS, SCRAPED[add_on])
    assert not _reached(add_on, RUN, SCRAPED[add_on])


@pytest.mark.parametrize("port", API_SERVER_PORTS)
def test_every_controller_reaches_the_api_server_and_dns(port: int) -> None:
    for add_on, found in policies().items():
        assert admits(found, _pod(add_on), API_SERVER, port, "Egress"), add_on
        assert admits(found, _pod(add_on), DNS, 53, "Egress", "UDP"), add_on


@pytest.mark.parametrize(
    "add_on", ["kueue", "jobset", "kubeflowTrainer", "trainingOperator", "mpiOperator"]
)
def test_controllers_of_runs_do_not_reach_runs(add_on: str) -> None:
    assert not admits(policies()[add_on], _pod(add_on), RUN, 8080, "Egress")


def test_gpu_add_ons_reach_the_engine_of_their_namespace() -> None:
    assert _reached("gpuOperator", _pod("gpuOperator"), dcgm_exporter.ENGINE_PORT)
    assert not _reached("gpuOperator", RUN, dcgm_exporter.ENGINE_PORT)
