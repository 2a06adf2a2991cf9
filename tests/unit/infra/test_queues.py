"""Kueue objects: quotas derived from pools, flavor order and preemption by tier."""

from __future__ import annotations

from typing import Any

from infra.config import arguments, parse
from infra.domain import naming, quantity
from infra.queueing import kueue
from infra.queueing.quotas import QueuesArgs
from tests.golden.example_runs import stack_values


def args(**changes: Any) -> QueuesArgs:
    """The example's pools and teams."""
    return arguments.queues(parse(stack_values() | changes))


def queue(team: str) -> dict[str, Any]:
    """The spec of a team's ClusterQueue."""
    found = args()
    chosen = next(t for t in found.teams if t.name == team)
    spec: dict[str, Any] = kueue.cluster_queue(chosen, found.cohort, found.pools)["spec"]
    return spec


def flavors(spec: dict[str, Any]) -> list[str]:
    """Flavors of a queue in their order."""
    return [flavor["name"] for flavor in spec["resourceGroups"][0]["flavors"]]


def amount(resource: str, text: str) -> int:
    """A quota as a plain number."""
    return quantity.millicores(text) if resource == "cpu" else quantity.bytes_(text)


def test_quotas_sum_to_the_pool_capacity() -> None:
    found = args()
    specs = [kueue.cohort(found.cohort, found.pools, found.teams)["spec"]]
    specs += [kueue.cluster_queue(t, found.cohort, found.pools)["spec"] for t in found.teams]
    for pool in found.pools:
        for resource in kueue.covered_resources(found.pools):
            total = sum(
                amount(resource, r["nominalQuota"])
                for spec in specs
                for flavor in spec["resourceGroups"][0]["flavors"]
                if flavor["name"] == pool.name
                for r in flavor["resources"]
                if r["name"] == resource
            )
            assert total == pool.node_quota[resource] * pool.max


def test_network_devices_are_counted_where_pools_have_them() -> None:
    assert naming.EFA in kueue.covered_resources(args().pools)
    pools = [p | {"network": "tcp"} for p in stack_values()["nodePools"]]
    assert naming.EFA not in kueue.covered_resources(args(nodePools=pools).pools)
