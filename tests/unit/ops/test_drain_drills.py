"""Draining lists the drill Jobs whose pods would hold volumes."""

from __future__ import annotations

from typing import Any

import pytest

from infra.domain import naming
from ops import __main__ as front_door
from ops.cluster import Kind
from ops.objects import Json
from tests.unit.snapshots import Text


def item(kind: str, name: str, team: str, *owners: Json, **labels: str) -> Json:
    metadata: Json = {"name": name, "namespace": f"team-{team}", "ownerReferences": list(owners)}
    metadata["labels"] = {naming.TEAM: team, naming.PART_OF: naming.PROJECT} | labels
    return {"kind": kind, "metadata": metadata, "spec": {"stopPolicy": "HoldAndDrain"}}


def drill(name: str, team: str, *owners: Json) -> Json:
    return item("Job", name, team, *owners, **{naming.COMPONENT: "restore-drill"})


class Drained:
    """A cluster whose queues are drained, with Jobs of two teams."""

    jobs = (
        drill("mine", "research"),
        drill("restore-drill-29", "research", {"name": "restore-drill", "controller": True}),
        item("Job", "prepare-texts", "research", **{naming.COMPONENT: "training"}),
        drill("theirs", "production"),
    )

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        queues = [item("ClusterQueue", "team-research", "research")]
        queues.append(item("ClusterQueue", "team-production", "production"))
        found = {"clusterqueues": queues, "jobs": list(self.jobs)}.get(kind.plural, [])
        wanted = [term.split("=") for term in selector.split(",") if "=" in term]
        return [i for i in found if all(i["metadata"]["labels"].get(k) == v for k, v in wanted)]

    def patch(self, kind: Kind, name: str, change: Any) -> None:
        raise AssertionError(f"{name} is drained already")


@pytest.mark.parametrize(
    ("arguments", "drills"),
    [
        (["--team", "research"], ["job/mine -n team-research"]),
        ([], ["job/mine -n team-research", "job/theirs -n team-production"]),
    ],
    ids=["one team", "all teams"],
)
def test_drill_jobs_without_owner_are_listed_with_their_delete_command(
    arguments: list[str],
    drills: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: Text,
) -> None:
    monkeypatch.setattr(front_door, "Cluster", lambda *_: Drained())
    assert front_door.main(["stack", "drain", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    named = [line for line in lines if "kubectl delete" in line]
    assert [drill in line for drill, line in zip(drills, named, strict=True)] == [True] * len(
        drills
    )
    text(named)
