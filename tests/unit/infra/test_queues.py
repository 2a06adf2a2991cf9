"""Kueue objects: quotas derived from pools, flavor order and preemption by tier."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import arguments, parse
from infra.domain import naming, quantity, topology
from infra.queueing import kueue, priorities
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


def test_research_tries_spot_first_and_production_on_demand_first() -> None:
    assert flavors(queue("research")) == ["spot", "ondemand"]
    assert flavors(queue("production")) == ["ondemand", "spot"]


def test_research_tries_the_next_flavor_where_production_preempts_borrowers() -> None:
    assert queue("research")["flavorFungibility"]["whenCanPreempt"] == "TryNextFlavor"
    assert queue("production")["flavorFungibility"]["whenCanPreempt"] == "MayStopSearch"


@pytest.mark.parametrize("team", ["research", "production"])
def test_team_preempts_any_borrower_to_reclaim_its_guarantee(team: str) -> None:
    assert queue(team)["preemption"]["reclaimWithinCohort"] == "Any"


@pytest.mark.parametrize("team", ["research", "production"])
def test_higher_priority_run_preempts_within_a_team(team: str) -> None:
    assert queue(team)["preemption"]["withinClusterQueue"] == "LowerPriority"


def test_research_does_not_preempt_production_for_fair_sharing() -> None:
    assert queue("research")["fairSharing"] == {"weight": "1"}
    assert queue("production")["fairSharing"] == {"weight": "10"}
    teams = [{**team, "fairWeight": 3} for team in stack_values()["teams"]]
    assert [team.fair_weight for team in args(teams=teams).teams] == [3, 3]


def test_research_borrows_spot_before_it_preempts_on_demand() -> None:
    assert queue("research")["flavorFungibility"]["whenCanBorrow"] == "MayStopSearch"


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


def test_every_flavor_lists_the_covered_resources_in_their_order() -> None:
    for team in ("research", "production"):
        group = queue(team)["resourceGroups"][0]
        for flavor in group["flavors"]:
            assert [r["name"] for r in flavor["resources"]] == group["coveredResources"]


def test_network_devices_are_counted_where_pools_have_them() -> None:
    assert naming.EFA in kueue.covered_resources(args().pools)
    pools = [p | {"network": "tcp"} for p in stack_values()["nodePools"]]
    assert naming.EFA not in kueue.covered_resources(args(nodePools=pools).pools)


def test_only_the_team_namespace_may_use_its_queue() -> None:
    assert queue("research")["namespaceSelector"] == {"matchLabels": {naming.TEAM: "research"}}


def test_a_flavor_selects_and_tolerates_its_pool() -> None:
    pool = next(p for p in args().pools if p.name == "spot")
    spec = kueue.flavor(pool)["spec"]
    assert spec["nodeLabels"] == {naming.POOL: "spot"}
    assert spec["nodeTaints"] == [t.manifest() for t in pool.taints]
    assert spec["tolerations"] == pool.tolerations()
    assert spec["topologyName"] == kueue.topology(topology.FLAT)["metadata"]["name"]


def test_cpu_pools_have_no_flavor() -> None:
    assert [p.name for p in args().pools] == ["ondemand", "spot"]


def test_cohort_name_is_that_of_the_stack() -> None:
    found = args(cohort="shared")
    assert kueue.cohort("shared", found.pools, found.teams)["metadata"]["name"] == "shared"
    assert queue("research")["cohortName"] == "trainyard"


@pytest.mark.parametrize("name", priorities.PRIORITIES)
def test_queue_and_scheduler_agree_on_priorities(name: str) -> None:
    scheduler = priorities.priority_class(name)
    assert scheduler["value"] == kueue.workload_priority_class(name)["value"]
    assert scheduler["preemptionPolicy"] == "Never"
    assert scheduler["globalDefault"] is False


def test_production_has_the_highest_priority() -> None:
    assert priorities.PRIORITIES["production-training"] == 100_000
    assert max(priorities.PRIORITIES.values()) == 100_000
    assert len(set(priorities.PRIORITIES.values())) == len(priorities.PRIORITIES)
