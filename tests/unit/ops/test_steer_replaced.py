"""Groups that `spot steer` queues again, because their node was cordoned for what runs said of its ranks."""

from __future__ import annotations

from infra.domain import naming
from ops.objects import Json, full_name
from ops.steer.cordon import leaving
from tests.unit.ops.group_fixtures import admitted, queued
from tests.unit.ops.run_fixtures import condition


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
