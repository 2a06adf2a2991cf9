"""Queues of Volcano and YuniKorn: derived from the same pools and teams as those of Kueue."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml

from infra.addons.registry import ADD_ONS
from infra.config import arguments, parse
from infra.domain import naming, quantity
from infra.domain.scheduler import Scheduler
from infra.queueing import priorities, shares, volcano, yunikorn
from infra.queueing.backends import backend
from infra.queueing.quotas import QueuesArgs
from tests.golden.example_runs import scheduler_values

_YUNIKORN_NAME = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}")
"""Names of queues that YuniKorn's validation admits."""


def args(scheduler: Scheduler = Scheduler.VOLCANO, **changes: Any) -> QueuesArgs:
    """The example's pools and teams."""
    return arguments.queues(parse(scheduler_values(scheduler) | changes))


def teams(*guaranteed: dict[str, int], gpus: int = 32) -> list[dict[str, Any]]:
    """Research teams with these guarantees."""
    base = copy.deepcopy(scheduler_values(Scheduler.VOLCANO)["teams"][0])
    quota = base["quota"] | {"gpus": gpus}
    return [
        base | {"name": f"team{i}", "guaranteed": nodes, "quota": quota}
        for i, nodes in enumerate(guaranteed)
    ]


def amount(resource: str, text: str) -> int:
    """A quantity as a plain number."""
    return quantity.millicores(text) if resource == "cpu" else quantity.bytes_(text)


def spec(found: QueuesArgs, index: int) -> dict[str, Any]:
    """The spec of a team's Queue."""
    made: dict[str, Any] = volcano.queue(found.teams[index], found)["spec"]
    return made


def tree(found: QueuesArgs) -> dict[str, Any]:
    """YuniKorn's queue of the cohort, as its scheduler reads it."""
    text = yunikorn.config_map(found)["data"]["queues.yaml"]
    [partition] = yaml.safe_load(text)["partitions"]
    [root] = partition["queues"]
    [cohort] = root["queues"]
    read: dict[str, Any] = cohort
    return read


def test_queue_limit_is_at_most_the_team_quota() -> None:
    assert spec(args(), 0)["capability"][naming.GPU] == "32"
    assert spec(args(teams=teams({}, gpus=8)), 0)["capability"][naming.GPU] == "8"


def test_queue_limit_is_at_most_the_pool_capacity() -> None:
    pools = [p | {"max": 2} for p in scheduler_values(Scheduler.VOLCANO)["nodePools"]]
    found = args(nodePools=pools, teams=teams({}))
    assert spec(found, 0)["capability"][naming.GPU] == "32"
    assert amount("cpu", spec(found, 0)["capability"]["cpu"]) < quantity.millicores("512")


def test_guaranteed_nodes_are_reclaimable_and_not_reserved() -> None:
    found = spec(args(teams=teams({"ondemand": 1, "spot": 1})), 0)
    assert found["deserved"][naming.GPU] == "16"
    assert "guarantee" not in found
    assert found["reclaimable"] is True


def test_team_without_guarantees_has_no_deserved_resources() -> None:
    assert spec(args(teams=teams({})), 0)["deserved"][naming.GPU] == "0"


@pytest.mark.parametrize("gpus", [0, 8, 32, 100])
def test_guarantee_does_not_exceed_the_queue_limit(gpus: int) -> None:
    found = args(teams=teams({"ondemand": 4}, {"spot": 10}, gpus=gpus))
    for share in found.teams:
        most = shares.most(share, found)
        assert all(n <= most[r] for r, n in shares.guaranteed(share, found).items())


def test_guarantees_together_fit_the_pools() -> None:
    found = args(teams=teams({"ondemand": 4, "spot": 20}, {"spot": 30}, gpus=432))
    pools = shares.everything(found)
    for resource in pools:
        total = sum(shares.guaranteed(share, found)[resource] for share in found.teams)
        assert total <= pools[resource]


def test_network_devices_are_counted_where_pools_have_them() -> None:
    assert naming.EFA in shares.everything(args())
    tcp = [p | {"network": "tcp"} for p in scheduler_values(Scheduler.VOLCANO)["nodePools"]]
    assert naming.EFA not in shares.everything(args(nodePools=tcp))


def test_yunikorn_queue_tree_is_root_cohort_team() -> None:
    found = args(Scheduler.YUNIKORN)
    assert tree(found)["name"] == "trainyard"
    assert [q["name"] for q in tree(found)["queues"]] == ["research", "production"]
    for queue in tree(found)["queues"]:
        path = f"root.{tree(found)['name']}.{queue['name']}"
        assert path == backend(Scheduler.YUNIKORN).queue(queue["name"], "trainyard")
        assert all(_YUNIKORN_NAME.fullmatch(part) for part in path.split("."))


def test_yunikorn_guarantees_and_limits_are_within_the_cohort() -> None:
    cohort = tree(args(Scheduler.YUNIKORN))
    above = cohort["resources"]["max"]
    for queue in cohort["queues"]:
        within, kept = queue["resources"]["max"], queue["resources"]["guaranteed"]
        assert within.keys() == kept.keys() == above.keys()
        for name in within:
            kind = "cpu" if name == "vcore" else name
            most = amount(kind, within[name])
            assert amount(kind, kept[name]) <= most <= amount(kind, above[name])


def test_yunikorn_schedules_gangs_in_order_and_creates_no_queues_dynamically() -> None:
    found = args(Scheduler.YUNIKORN)
    assert {q["properties"]["application.sort.policy"] for q in tree(found)["queues"]} == {"fifo"}
    [partition] = yunikorn.queues(found)["partitions"]
    assert partition["placementrules"] == [{"name": "provided", "create": False}]


def test_volcano_admits_gangs_for_nodes_to_be_scaled_up() -> None:
    config = yaml.safe_load(volcano.SCHEDULER_CONFIG)
    actions = config["actions"].split(", ")
    assert "enqueue" not in actions
    assert {"allocate", "reclaim"} <= set(actions)
    plugins = [p["name"] for tier in config["tiers"] for p in tier["plugins"]]
    assert {"gang", "capacity"} <= set(plugins)
    assert "proportion" not in plugins


@pytest.mark.parametrize("scheduler", [s for s in Scheduler if backend(s).operator])
def test_every_scheduler_can_be_installed_at_one_version(scheduler: Scheduler) -> None:
    chart = ADD_ONS[backend(scheduler).operator]
    assert re.fullmatch(r"\d+\.\d+\.\d+", chart.version)
    assert chart.repository.startswith("https://") or chart.chart.startswith("oci://")


@pytest.mark.parametrize(
    ("scheduler", "policy"),
    [
        (Scheduler.KUEUE, "Never"),
        (Scheduler.VOLCANO, "PreemptLowerPriority"),
        (Scheduler.YUNIKORN, "PreemptLowerPriority"),
        (Scheduler.NATIVE, "Never"),
    ],
)
def test_only_schedulers_that_reclaim_by_priority_class_may_preempt(
    scheduler: Scheduler, policy: str
) -> None:
    preemption = backend(scheduler).preemption_policy
    made = priorities.priority_class("production-training", preemption)
    assert made["preemptionPolicy"] == policy
