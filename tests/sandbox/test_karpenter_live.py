"""The rendered NodePools on a real Karpenter with the project's Kueue; `--full` only: it is built at first use.

Nodes are objects without machines (karpenter_kit.py). What EC2 does is not shown here: starting and terminating
instances, spot notices, and how long any of that takes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from infra.domain import catalog, naming, prices
from infra.domain.prices import Purchase
from sandbox.node.api import object_path
from tests import committed
from tests.sandbox.conftest import Cluster
from tests.sandbox.karpenter_kit import (
    DEADLINE_S,
    NODE_POOLS,
    ZONE,
    KarpenterFleet,
    instance_types,
    karpenter,
)
from tests.sandbox.node_kit import until
from tests.sandbox.queue_kit import team_of

pytestmark = [pytest.mark.sandbox, pytest.mark.full_only, pytest.mark.timeout(1800)]

Json = dict[str, Any]

TEAM = "karpenter"
A100, L40S = "p4d.24xlarge", "g6e.48xlarge"
NO_SPOT = (L40S,)
"""Types that have no spot capacity in these tests."""
SPOT, DRY, FALLBACK, ON_DEMAND = "kp-spot", "kp-dry", "kp-fallback", "kp-ondemand"
PODS = "karpenter-pods"
"""Namespace of pods that Kueue does not manage."""


def _pool(name: str, instance_type: str, nodes: int, capacity: str, **more: str) -> Json:
    return {
        "name": name,
        "nodes": "karpenter",
        "capacity": capacity,
        "instanceTypes": [instance_type],
        "min": 0,
        "max": nodes,
        "zone": ZONE,
        "network": "efa",
        **more,
    }


POOLS = [
    _pool(SPOT, A100, 4, "spot", fallback="on-demand"),
    _pool(DRY, L40S, 2, "spot"),
    _pool(FALLBACK, L40S, 2, "spot", fallback="on-demand"),
    _pool(ON_DEMAND, A100, 2, "on-demand"),
]


@pytest.fixture(scope="module")
def fleet(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KarpenterFleet]:
    """Karpenter, and a stack's pools and queues without any node."""
    folder = tmp_path_factory.mktemp("karpenter")
    types = instance_types((A100, L40S), NO_SPOT)
    made = KarpenterFleet(cluster, "karpenter", POOLS, [team_of(TEAM)])
    with karpenter(cluster, folder, types) as made.metrics, made.deployed():
        yield made


@pytest.fixture
def runs(fleet: KarpenterFleet) -> Iterator[KarpenterFleet]:
    yield fleet
    fleet.stop_all()
    fleet.cluster.kubectl("delete", "namespace", PODS, "--ignore-not-found", "--timeout=180s")
    # By itself Karpenter would delete them one at a time.
    fleet.cluster.kubectl("delete", "nodeclaims.karpenter.sh", "--all", "--timeout=300s")
    for pool in POOLS:
        fleet.await_empty(pool["name"])


def _start(fleet: KarpenterFleet, pool: str, nodes: int, name: str = "gang") -> str:
    return fleet.start(TEAM, name, [pool], nodes=nodes, hold=False, keeps_running=True)


def _pods(fleet: KarpenterFleet, pool: str, gpus: dict[str, int]) -> None:
    """Create pods for a pool's nodes without a queue, by name with their GPUs."""
    (found,) = (one for one in fleet.config.pools if one.name == pool)
    items: list[Json] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PODS}}]
    for name, count in gpus.items():
        container = {
            "name": "main",
            "image": "example.com/none@sha256:" + "0" * 64,
            "resources": {"limits": {naming.GPU: str(count)}},
        }
        spec = {
            "nodeSelector": {naming.POOL: pool},
            "tolerations": found.tolerations(),
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
        }
        about = {"name": name, "namespace": PODS}
        items.append({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    fleet.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))


def _nodes_of_pods(fleet: KarpenterFleet) -> dict[str, str]:
    found = fleet.client.get(object_path("/api/v1", PODS, "pods"))["items"]
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in found
        if pod["status"].get("phase") == "Running"
    }


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_the_api_server_accepts_the_rendered_pools(fleet: KarpenterFleet, stack: str) -> None:
    pools = [
        one["inputs"]
        for one in committed.rendered(stack)
        if one["type"] == "kubernetes:karpenter.sh/v1:NodePool"
    ]
    if stack == "prod":
        assert pools
    for pool in pools:
        fleet.cluster.kubectl(
            *("apply", "--server-side", "--dry-run=server", "-f", "-"), stdin=json.dumps(pool)
        )


def test_a_gang_gets_spot_nodes_from_zero_and_a_waiting_one_gets_none(runs: KarpenterFleet) -> None:
    assert not runs.nodes(SPOT)
    run = _start(runs, SPOT, 4)
    names = runs.await_running(run, 4)
    nodes = runs.nodes(SPOT)
    assert set(nodes) == names
    (pool,) = (one for one in runs.config.pools if one.name == SPOT)
    for node in nodes.values():
        labels = node["metadata"]["labels"]
        assert pool.labels(catalog.load().types[A100]).items() <= labels.items()
        assert node["spec"]["taints"] == [taint.manifest() for taint in pool.taints]
        assert prices.purchase_of(labels, pool) is Purchase.SPOT
        paid = prices.usd_per_hour(A100, Purchase.SPOT)
        assert float(labels["eks-node-viewer/instance-price"]) == pytest.approx(paid)
    waiting = _start(runs, SPOT, 2, "waiting")
    runs.await_split({run}, {waiting})
    assert len(runs.claims(SPOT)) == 4
    runs.stop(TEAM, run)
    runs.await_running(waiting, 2)


def test_without_spot_capacity_only_a_pool_with_a_fallback_buys_on_demand(
    runs: KarpenterFleet,
) -> None:
    stuck = _start(runs, DRY, 1, "dry")
    run = _start(runs, FALLBACK, 2)
    runs.await_running(run, 2)
    for node in runs.nodes(FALLBACK).values():
        labels = node["metadata"]["labels"]
        assert labels[naming.KARPENTER_CAPACITY] == "on-demand"
        assert labels[naming.CAPACITY] == "spot", "runs admitted to the pool fit the node"
        assert prices.purchase_of(labels) is Purchase.ON_DEMAND
    pod = until(lambda: runs.pods(stuck), "the run without nodes has its pod", DEADLINE_S)[0]
    runs.await_event("FailedScheduling", pod["metadata"]["name"], "Failed to schedule pod")
    assert not runs.claims(DRY)


def test_an_on_demand_pool_never_buys_spot_though_it_is_cheaper(runs: KarpenterFleet) -> None:
    run = _start(runs, ON_DEMAND, 2)
    runs.await_running(run, 2)
    bought = {
        node["metadata"]["labels"][naming.KARPENTER_CAPACITY]
        for node in runs.nodes(ON_DEMAND).values()
    }
    assert bought == {"on-demand"}


def test_a_gang_that_loses_a_node_runs_again_on_a_new_one(runs: KarpenterFleet) -> None:
    """On EC2, Karpenter deletes the NodeClaim on a spot notice, too."""
    run = _start(runs, SPOT, 4)
    before = runs.await_running(run, 4)
    lost = next(iter(runs.claims(SPOT).values()))
    path = object_path(NODE_POOLS, None, "nodeclaims", lost["metadata"]["name"])
    runs.client.delete(path)
    node = lost["status"]["nodeName"]
    until(lambda: node not in runs.nodes(SPOT), "the node is gone", DEADLINE_S, every_s=0.5)
    after = runs.await_running(run, 4)
    assert node in before and node not in after
    assert len(runs.claims(SPOT)) <= 4


def test_drift_does_not_end_a_gang_and_its_nodes_go_when_it_ends(runs: KarpenterFleet) -> None:
    run = _start(runs, SPOT, 2)
    before = runs.await_running(run, 2)
    claims = set(runs.claims(SPOT))
    path = object_path(NODE_POOLS, None, "nodepools", SPOT)
    labels = {"changed": "yes"}
    runs.client.patch(path, {"spec": {"template": {"metadata": {"labels": labels}}}})
    try:
        until(lambda: _all_drifted(runs), "all nodes have drifted", DEADLINE_S, every_s=0.5)
        runs.await_event("DisruptionBlocked", SPOT, "Drifted")
        assert set(runs.running(run).values()) == before
        assert set(runs.claims(SPOT)) == claims
        runs.stop(TEAM, run)
        runs.await_empty(SPOT)
    finally:
        labels = {"changed": None}  # type: ignore[dict-item]
        runs.client.patch(path, {"spec": {"template": {"metadata": {"labels": labels}}}})


def _all_drifted(fleet: KarpenterFleet) -> bool:
    return all(
        any(c["type"] == "Drifted" and c["status"] == "True" for c in one["status"]["conditions"])
        for one in fleet.claims(SPOT).values()
    )


def test_empty_nodes_go_one_at_a_time_where_the_budget_is_one(runs: KarpenterFleet) -> None:
    run = _start(runs, SPOT, 3)
    runs.await_running(run, 3)
    claims = set(runs.claims(SPOT))
    runs.stop(TEAM, run)
    runs.await_empty(SPOT)
    events = runs.client.get(object_path("/api/v1", None, "events"))["items"]
    times = sorted(
        datetime.fromisoformat(event["firstTimestamp"])
        for event in events
        if event["reason"] == "DisruptionTerminating" and event["involvedObject"]["name"] in claims
    )
    assert len(times) == 3
    # Karpenter looks again at empty nodes after 15 s, before it deletes those of one decision together.
    assert all((b - a).total_seconds() >= 5 for a, b in itertools.pairwise(times))


def test_nodes_in_use_are_kept_however_little_is_used(runs: KarpenterFleet) -> None:
    _pods(runs, ON_DEMAND, {"large-0": 7, "large-1": 7, "small-0": 1, "small-1": 1})
    where = until(
        lambda: found if len(found := _nodes_of_pods(runs)) == 4 else None,
        "four pods run on two nodes",
        DEADLINE_S,
        every_s=0.5,
    )
    assert len(set(where.values())) == 2
    runs.cluster.kubectl("delete", "pod", "-n", PODS, "large-0", "large-1", "--timeout=180s")
    runs.await_decisions()
    small = {name: node for name, node in where.items() if name.startswith("small")}
    assert _nodes_of_pods(runs) == small and set(runs.nodes(ON_DEMAND)) == set(small.values())


def test_no_node_is_bought_beyond_the_pools_maximum(runs: KarpenterFleet) -> None:
    _pods(runs, ON_DEMAND, {"first": 8, "second": 8, "third": 8})
    until(lambda: len(_nodes_of_pods(runs)) == 2, "two pods run", DEADLINE_S, every_s=0.5)
    (waiting,) = {"first", "second", "third"} - set(_nodes_of_pods(runs))
    runs.await_event("FailedScheduling", waiting, "limit")
    assert len(runs.claims(ON_DEMAND)) == 2


def test_a_broken_node_is_replaced_in_a_pool_at_its_maximum(runs: KarpenterFleet) -> None:
    """The provider's own condition; on EC2 it is the node monitoring agent's AcceleratedHardwareReady."""
    run = _start(runs, SPOT, 4)
    broken = sorted(runs.await_running(run, 4))[0]
    condition = {
        "type": "KWOKUnhealthy",
        "status": "True",
        "reason": "Broken",
        "message": "GPU 3 fell off the bus",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    path = object_path("/api/v1", None, "nodes", broken) + "/status"
    runs.client.patch(path, {"status": {"conditions": [condition]}}, "strategic")
    until(lambda: broken not in runs.nodes(SPOT), "the node is gone", DEADLINE_S, every_s=0.5)
    runs.await_event("DisruptionLaunching", None, "Unhealthy")
    assert broken not in runs.await_running(run, 4)
