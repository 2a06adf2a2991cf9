"""What `spot steer` knows of a run's progress decides where it goes, also while the run reports nothing."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from infra.domain import naming
from infra.observability import series
from ops.cluster import Kind
from ops.collect import CLUSTER_QUEUES, NODES, WORKLOADS
from ops.metrics import MetricsUnknownError, Sample
from ops.objects import Json
from ops.promql import Expression
from ops.steer import settings
from ops.steer.control import Controller

NOW, HOUR_S = 1_800_000_000.0, 3600.0
RUN = "hello-v1-aaaaaaaa"
SETTINGS = settings.parse(
    {
        "pools": [
            {"name": "spot", "place": "spot", "usdPerNodeHour": 10.0},
            {"name": "bought", "place": "on-demand", "usdPerNodeHour": 30.0},
        ],
        "rules": {"losses": 2, "windowSeconds": 6 * HOUR_S, "emptySeconds": HOUR_S},
    }
)


def time_text(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class World:
    """A run with a deadline in ten hours, which holds spot nodes, and the Prometheus that knows it."""

    place = "here"

    def __init__(self, max_hours: float | None = None) -> None:
        self.left_h: float | None = None
        self.down = False
        annotations = {naming.DEADLINE: time_text(NOW + 10 * HOUR_S)}
        labels = {naming.RUN_ID: RUN, naming.TEAM: "research"}
        template = {"metadata": {"annotations": annotations, "labels": labels}, "spec": {}}
        self.workload: Json = {
            "metadata": {
                "name": "job-hello",
                "namespace": "team-research",
                "labels": labels,
                "ownerReferences": [{"name": RUN}],
                "creationTimestamp": time_text(NOW),
            },
            "spec": {
                "active": True,
                "queueName": "research",
                "podSets": [{"count": 2, "template": template}],
            },
            "status": {
                "admission": {
                    "clusterQueue": "team-research",
                    "podSetAssignments": [{"flavors": {naming.GPU: "spot"}}],
                }
            },
        }
        if max_hours:
            self.workload["spec"]["maximumExecutionTimeSeconds"] = max_hours * HOUR_S
        self.controller = Controller(self, SETTINGS, lambda _: None)  # type: ignore[arg-type]

    def items(self, kind: Kind, *_: Any) -> list[Json]:
        flavors = [{"name": name} for name in SETTINGS.pools]
        queue = {
            "metadata": {"name": "team-research"},
            "spec": {"resourceGroups": [{"flavors": flavors}]},
        }
        return {CLUSTER_QUEUES: [queue], WORKLOADS: [self.workload], NODES: []}.get(kind, [])

    def patch(self, _kind: Kind, _name: str, change: Json, _namespace: str) -> None:
        self.workload["metadata"].setdefault("annotations", {}).update(
            change["metadata"]["annotations"]
        )

    def create(self, *_: Any) -> None:
        """Take an event."""

    def query(self, asked: Expression) -> list[Sample]:
        """Ten hours of work in steps of a second."""
        if self.down:
            raise MetricsUnknownError("no answer")
        if self.left_h is None:
            return []
        values = {
            f"max by (run_id) ({series.STEP})": (6 - self.left_h) * HOUR_S,
            f"max by (run_id) ({series.PLANNED_STEPS})": 6 * HOUR_S,
        }
        expression = str(asked)
        found = 1.0 if "rate(" in expression else values.get(expression)
        return [] if found is None else [Sample(labels={"run_id": RUN}, value=found)]

    def look(self, hours: float) -> str:
        """Where it may be after a look; empty: everywhere."""
        self.controller.step(self, NOW + hours * HOUR_S)  # type: ignore[arg-type]
        notes = self.workload["metadata"].get("annotations") or {}
        if naming.STEERING in notes:
            assert json.loads(notes[naming.STEERING])["place"]
        return str(notes.get(naming.ALLOWED_FLAVORS) or "")


@pytest.mark.parametrize("down", [False, True])
def test_a_gang_that_reports_nothing_for_a_while_keeps_what_it_has_done(down: bool) -> None:
    world = World()
    world.left_h = 5.0
    assert world.look(1.0) == "spot"
    world.left_h, world.down = None, down
    assert world.look(1.5) == "spot"


def test_a_gang_that_has_never_reported_goes_to_on_demand_unless_its_longest_time_fits() -> None:
    assert World().look(0.0) == "bought"
    assert World(max_hours=6).look(0.0) == "spot"
    assert World(max_hours=9.9).look(0.0) == "bought"


def test_what_was_known_of_a_run_does_not_outlive_it() -> None:
    world = World()
    world.left_h = 5.0
    assert world.look(1.0) == "spot"
    kept, world.left_h = world.workload["metadata"]["labels"], None
    world.workload["metadata"]["labels"] = kept | {naming.RUN_ID: "other-v1-bbbbbbbb"}
    world.workload["metadata"]["ownerReferences"] = [{"name": "other-v1-bbbbbbbb"}]
    assert world.look(1.0) == "bought"
    world.workload["metadata"]["labels"] = kept
    world.workload["metadata"]["ownerReferences"] = [{"name": RUN}]
    assert world.look(1.0) == "bought"
