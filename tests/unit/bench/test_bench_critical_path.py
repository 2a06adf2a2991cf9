"""The simulated critical path of the first `up`, on small graphs and on the committed stacks."""

from __future__ import annotations

from typing import Any

import pytest

from bench import critical_path
from bench.critical_path import CONTROL_PLANE_S, DELAYS, GOAL, graph, longest, seconds
from tests import committed

GROUP = "aws:eks/nodeGroup:NodeGroup"
RELEASE = "kubernetes:helm.sh/v3:Release"


def made(kind: str, name: str, *needs: str, **inputs: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "name": name,
        "inputs": inputs,
        "dependsOn": list(needs),
        "provider": "",
    }


SMALL = [
    made("eks:index:Cluster", "c"),
    made(GROUP, "aws-system-group", "eks:index:Cluster::c", clusterName="c"),
    made(RELEASE, "operators-kueue", f"{GROUP}::aws-system-group"),
    made(RELEASE, "late", f"{RELEASE}::plain", f"{GROUP}::aws-system-group"),
    made(RELEASE, "plain", f"{GROUP}::aws-system-group"),
]


def test_time_is_that_of_the_longest_chain() -> None:
    found = graph(SMALL)
    assert longest(found.records, found.ours, DELAYS) == [
        "eks:index:Cluster::c",
        f"{GROUP}::aws-system-group",
        f"{RELEASE}::plain",
        f"{RELEASE}::late",
    ]
    assert seconds(found.records, found.ours, DELAYS) == CONTROL_PLANE_S + 120 + 60 + 60


def test_an_order_that_no_api_forces_is_not_part_of_the_forced_chain() -> None:
    found = graph(SMALL)
    assert seconds(found.records, found.forced, DELAYS) == CONTROL_PLANE_S + 120 + 60


@pytest.mark.parametrize("stack", critical_path.STACKS)
def test_up_of_a_committed_stack_waits_for_what_the_apis_force_only(stack: str) -> None:
    found = graph(committed.rendered(stack))
    ours = seconds(found.records, found.ours, DELAYS)
    forced = seconds(found.records, found.forced, DELAYS)
    assert forced <= ours <= GOAL * forced, longest(found.records, found.ours, DELAYS)
    files = [key for key in found.records if "LustreFileSystem" in key]
    for key in files:
        assert not any("Cluster" in other for other in _all(found.ours, key)), key


def _all(edges: critical_path.Edges, key: str) -> set[str]:
    seen: set[str] = set()
    waiting = [key]
    while waiting:
        new = set(edges[waiting.pop()]) - seen
        seen |= new
        waiting += new
    return seen
