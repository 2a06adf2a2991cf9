"""Queues of Volcano and YuniKorn: derived from the same pools and teams as those of Kueue."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from infra.config import arguments, parse
from infra.domain import naming, quantity
from infra.domain.scheduler import Scheduler
from infra.queueing import shares, volcano, yunikorn
from infra.queueing.quotas import QueuesArgs
from tests.golden.example_runs import scheduler_values


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
