"""Ownership labels of every object in a cluster, so that audit logs show project and team."""

from __future__ import annotations

from functools import cache

import pytest

from infra.cli.render import Record
from infra.domain import naming
from tests import committed

STACKS = ("local", "dev", "prod")


@cache
def objects(stack: str) -> list[Record]:
    """Kubernetes objects of a committed stack; what is in a chart has the chart's labels."""
    records = committed.rendered(stack)
    return [
        r for r in records if r["type"].startswith("kubernetes:") and "helm.sh" not in r["type"]
    ]


def _labels(record: Record) -> dict[str, str]:
    found: dict[str, str] = record["inputs"]["metadata"].get("labels", {})
    return found


def _unlabelled(stack: str, *labels: str) -> list[str]:
    return [
        f"{record['inputs']['kind']} {record['name']} lacks {label}"
        for record in objects(stack)
        for label in labels
        if not _labels(record).get(label)
    ]


@pytest.mark.parametrize("stack", STACKS)
def test_every_object_has_part_of_and_managed_by_labels(stack: str) -> None:
    assert objects(stack)
    assert _unlabelled(stack, naming.PART_OF, naming.MANAGED_BY) == []


@pytest.mark.parametrize("stack", STACKS)
def test_every_object_in_a_team_namespace_has_the_team_label(stack: str) -> None:
    spaces = {
        record["inputs"]["metadata"]["name"]: _labels(record)[naming.TEAM]
        for record in objects(stack)
        if record["inputs"]["kind"] == "Namespace" and naming.TEAM in _labels(record)
    }
    assert spaces
    for record in objects(stack):
        space = record["inputs"]["metadata"].get("namespace")
        if space in spaces:
            assert _labels(record).get(naming.TEAM) == spaces[space], record["name"]


def test_every_object_of_a_run_has_its_id_version_tier_and_launcher() -> None:
    run = [r for r in objects("local") if "TrainingJob" in r["parent"]]
    assert {r["inputs"]["kind"] for r in run} == {"ConfigMap", "JobSet"}
    wanted = (naming.RUN_ID, naming.RUN, naming.RUN_VERSION, naming.TIER, naming.LAUNCHER)
    assert [r["name"] for r in run for label in wanted if not _labels(r).get(label)] == []
