"""Groups that `spot steer` queues again, because their node was cordoned for what runs said of its ranks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from infra.domain import naming
from ops.cluster import Kind
from ops.collect import CLUSTER_QUEUES, NODES, PODS, WORKLOADS
from ops.objects import Json, full_name
from ops.steer import settings
from ops.steer.control import Controller
from ops.steer.replaced import leaving
from tests.unit.ops.group_fixtures import admitted, pod_of, queued
from tests.unit.ops.run_fixtures import condition

NOW = 1_800_000_000.0
WHY = "rank 3 of hello has been slow for 11 min"


def group(number: int, *, least: int = 1, ready: bool = True, active: bool = True) -> Json:
    found = admitted(number, active=active)
    found["metadata"]["labels"][naming.GROUPS_MIN] = str(least)
    found["status"]["conditions"].append(condition("PodsReady", "True" if ready else "False"))
    return found


def left(*workloads: Json, nodes: dict[int, str]) -> dict[str, int]:
    """Group number N is on the node `nodes[N]`; n1 and n2 are cordoned."""
    names = {full_name(one): number for number, one in enumerate(workloads)}
    on = {name: {nodes[number]} for name, number in names.items() if number in nodes}
    found = leaving(workloads, on, {"n1", "n2"})
    return {str(names[name]): others for name, others in found.items()}


def test_a_group_on_a_cordoned_node_leaves_and_the_others_stay() -> None:
    three = [group(number) for number in range(3)]
    assert left(*three, nodes={0: "n0", 1: "n1", 2: "n3"}) == {"1": 2}


def test_no_group_leaves_where_too_few_others_would_train() -> None:
    both = [group(number, least=2) for number in range(2)]
    assert left(*both, nodes={0: "n0", 1: "n1"}) == {}
    assert left(group(0, ready=False), group(1), nodes={0: "n0", 1: "n1"}) == {}
    assert left(queued(0), group(1), nodes={1: "n1"}) == {}
    assert left(group(1), nodes={0: "n1"}) == {}


def test_of_two_groups_on_cordoned_nodes_one_leaves_first() -> None:
    both = [group(number) for number in (1, 2)]
    assert left(*both, nodes={0: "n1", 1: "n2"}) == {"0": 1}


def test_a_group_that_has_ended_with_an_error_does_not_wait_for_its_node() -> None:
    gone = group(1, ready=False)
    assert left(group(0), gone, nodes={0: "n0", 1: "n1"}) == {"1": 1}


def test_a_group_that_was_stopped_and_a_run_without_groups_stay() -> None:
    assert left(group(0), group(1, active=False), nodes={0: "n0", 1: "n1"}) == {}
    gang = group(1)
    del gang["metadata"]["labels"][naming.GROUP]
    assert left(group(0), gang, nodes={0: "n0", 1: "n1"}) == {}


@dataclass
class World:
    """Two groups on a node each, of which one is cordoned; the API server that the controller asks."""

    note: str | None
    cordon: bool = True
    dry_run: bool = False
    said: list[str] = field(default_factory=list)
    patches: list[tuple[str, Json]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def items(self, kind: Kind, *_: Any) -> list[Json]:
        queue = {"metadata": {"name": "team-research"}, "spec": {"resourceGroups": []}}
        found = {
            CLUSTER_QUEUES: [queue],
            WORKLOADS: [group(0), group(1)],
            NODES: [self._node(0), self._node(1)],
            PODS: [pod_of(0), pod_of(1)],
        }
        return found.get(kind, [])

    def _node(self, number: int) -> Json:
        meta: Json = {
            "name": f"spot-{number}",
            "uid": f"u{number}",
            "labels": {naming.POOL: "spot"},
        }
        if number and self.note is not None:
            meta["annotations"] = {naming.CORDONED: self.note}
        ready = {"conditions": [condition("Ready")]}
        return {"metadata": meta, "spec": {"unschedulable": number == 1}, "status": ready}

    def patch(self, _kind: Kind, name: str, change: Json, _namespace: str) -> None:
        self.patches.append((name, change))

    def create(self, _kind: Kind, event: Json) -> None:
        self.events.append(event["message"])

    def step(self) -> list[tuple[str, Json]]:
        rules = {"losses": 2, "windowSeconds": 60.0, "emptySeconds": 60.0}
        given = {"pools": [], "rules": rules, "cordonNamedNodes": self.cordon}
        server: Any = self
        found = settings.parse(given)
        Controller(server, found, self.said.append, dry_run=self.dry_run).step(None, NOW)
        return self.patches


def test_the_group_is_stopped_until_it_has_let_go_and_says_why() -> None:
    world = World(json.dumps({"at": NOW, "why": WHY}))
    [(name, change)] = world.step()
    assert name.endswith("-g1") and change["spec"] == {"active": False}
    assert json.loads(change["metadata"]["annotations"][naming.STEERING])["moving"] is True
    [event] = world.events
    assert WHY in event and "node spot-1" in event and "1 group" in event


@pytest.mark.parametrize(
    "world",
    [
        World(None),
        World(json.dumps({"at": NOW, "why": WHY}), cordon=False),
        World(json.dumps({"at": NOW, "why": WHY}), dry_run=True),
    ],
    ids=["cordoned by a person", "not wanted", "dry run"],
)
def test_otherwise_nothing_is_written(world: World) -> None:
    assert world.step() == [] and world.events == []
    assert bool(world.said) == world.dry_run
