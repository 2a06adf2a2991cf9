"""Drift in `stack review --live`: recorded objects against those in the cluster, with the caller's rights."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from ops.cluster import ClusterError, ForbiddenError, Kind, UnreachableError
from ops.review import consequences, live_drift, report
from ops.review.live import Live
from ops.review.managers import parse_path, shown_path
from ops.review.steps import SECRET, Change, Preview, Step

Tree = dict[str, Any]
PREFIX = "urn:pulumi:dev::trainyard::trainyard:infra:Queues$kubernetes:"
GIVEN: Tree = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "research", "labels": {"trainyard.dev/team": "research"}},
    "spec": {
        "stopPolicy": "None",
        "selector": {},
        "groups": [{"name": "spot", "quota": "1000m"}, {"name": "ondemand", "quota": "0"}],
    },
}


def managed(live: Tree, manager: str, fields: Tree) -> Tree:
    entry = {"manager": manager, "time": "2026-11-24T09:00:00Z", "fieldsV1": fields}
    live["metadata"]["managedFields"] = [entry]
    return live


def recorded(given: Tree = GIVEN) -> Tree:
    """As the API server returned it: other spellings, defaults, a status."""
    found = copy.deepcopy(given)
    found["status"] = {"pendingWorkloads": 0}
    if found["kind"] == "ClusterQueue":
        found["spec"]["groups"][0]["quota"] = "1"
        found["spec"]["preemption"] = "Never"
    return found


def step(
    given: Tree = GIVEN, name: str = "queue", kind: str = "kueue.x-k8s.io/v1beta2:ClusterQueue"
) -> Step:
    return Step(
        urn=f"{PREFIX}{kind}::{name}",
        change=Change.SAME,
        old=given,
        new=given,
        recorded=recorded(given),
    )


def edited(path: str, value: Any) -> Tree:
    live = recorded()
    *parents, last = parse_path(path)
    at: Any = live
    for part in parents:
        at = at[part]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return live


def fields(live: Tree | None, of: Step | None = None) -> list[tuple[str, str, str]]:
    return [(one.field, one.recorded, one.now) for one in live_drift.compare(of or step(), live)]


def test_defaults_spellings_and_the_status_are_no_drift() -> None:
    live = recorded()
    live["status"] = {"pendingWorkloads": 7}
    live["spec"]["preemption"] = "Any"
    assert fields(live) == []
    assert fields(copy.deepcopy(GIVEN)) == []


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.stopPolicy", "Hold", ("None", "Hold")),
        ("spec.stopPolicy", None, ("None", "-")),
        ("spec.selector", {"a": "b"}, ("{}", '{"a": "b"}')),
        ("spec.groups[0].quota", "2", ("1000m", "2")),
        ('metadata.labels["trainyard.dev/team"]', "other", ("research", "other")),
    ],
)
def test_a_changed_input_is_drift_at_its_path(
    path: str, value: Any, expected: tuple[str, str]
) -> None:
    assert fields(edited(path, value)) == [(path, *expected)]


def test_a_list_of_another_length_is_one_difference() -> None:
    ((field, _, now),) = fields(edited("spec.groups", [{"name": "spot", "quota": "1"}]))
    assert (field, now) == ("spec.groups", '[{"name": "spot", "quota": "1"}]')


def test_a_deleted_object_is_drift() -> None:
    (found,) = live_drift.compare(step(), None)
    assert (found.resource, found.kind) == ("ClusterQueue queue", "deleted")


def test_what_the_program_ignores_is_no_drift() -> None:
    lets_be = dataclasses.replace(step(), ignored=(("spec", "stopPolicy"),))
    assert fields(edited("spec.stopPolicy", "Hold"), lets_be) == []
    assert fields(edited("spec.groups[1].quota", "9"), lets_be)


def test_values_that_the_preview_hides_are_not_compared() -> None:
    given = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": SECRET}
    live = {**given, "data": {"key": "dmFsdWU="}}
    assert fields(live, step(given, "secret", "core/v1:Secret")) == []


def test_who_changed_a_field_is_named() -> None:
    live = managed(
        edited("spec.stopPolicy", "Hold"), "kubectl-patch", {"f:spec": {"f:stopPolicy": {}}}
    )
    (found,) = live_drift.compare(step(), live)
    assert found.by and (found.by.name, found.writer.value) == ("kubectl-patch", "a person")


@pytest.mark.parametrize("path", ["spec.a[0].b", 'metadata.labels["a.b/c"]', 'x["\\"q"][1]'])
def test_paths_are_written_as_the_engine_does(path: str) -> None:
    assert shown_path(parse_path(path)) == path


class World:
    """A cluster with some objects, of which some kinds may not be read."""

    def __init__(self, *objects: Tree, forbidden: tuple[str, ...] = (), down: bool = False) -> None:
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in objects}
        self.forbidden, self.down = forbidden, down

    def text(self, path: str, query: object) -> str | None:
        if self.down:
            raise UnreachableError("API server: no answer")
        kinds = {
            "/apis/kueue.x-k8s.io/v1beta2": ["ClusterQueue"],
            "/api/v1": ["Secret", "ConfigMap"],
        }
        if path not in kinds:
            return None
        listed = [{"name": f"{kind.lower()}s", "kind": kind} for kind in kinds[path]]
        parts = [{"name": f"{one['name']}/status", "kind": one["kind"]} for one in listed]
        return json.dumps({"resources": [*parts, *listed]})

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Mapping[str, Any] | None:
        if kind.kind in self.forbidden:
            raise ForbiddenError("no")
        if name == "broken":
            raise ClusterError("HTTP 500")
        return self.objects.get((kind.kind, name))


def named(kind: str, api: str, name: str) -> Step:
    module = api if "/" in api else f"core/{api}"
    given = {"apiVersion": api, "kind": kind, "metadata": {"name": name}}
    return step(given, name, f"{module}:{kind}")


def read(world: World, *of: Step) -> live_drift.LiveDrift:
    preview = Preview(stack="dev", region="us-east-1", steps=of, findings=())
    return live_drift.read(world, preview)  # type: ignore[arg-type]


def test_what_may_not_be_read_is_a_gap_by_kind() -> None:
    world = World(edited("spec.stopPolicy", "Hold"), forbidden=("Secret",))
    bucket = Step(
        urn="urn:pulumi:dev::trainyard::aws:s3/bucket:Bucket::logs",
        change=Change.SAME,
        recorded={"bucket": "x"},
    )
    release = Step(
        urn="urn:pulumi:dev::trainyard::kubernetes:helm.sh/v3:Release::kueue",
        change=Change.SAME,
        recorded={"chart": "kueue"},
    )
    found = read(
        world,
        step(),
        release,
        named("Secret", "v1", "one"),
        named("Secret", "v1", "two"),
        named("ConfigMap", "v1", "gone"),
        named("ConfigMap", "v1", "broken"),
        named("Job", "unserved.io/v1", "job"),
        bucket,
    )
    assert found.compared == 2
    assert [(one.resource, one.kind.value) for one in found.differences] == [
        ("ClusterQueue queue", "changed"),
        ("ConfigMap gone", "deleted"),
    ]
    assert list(found.gaps) == [
        "1 ConfigMap: HTTP 500",
        "1 Job: the cluster does not serve this kind",
        "2 Secret: your role may not read them",
        "1 Helm releases: `stack drift` compares them",
        "1 resources outside of the cluster: `stack drift` compares them",
    ]
    live = Live(nodes={}, usd_per_hour=0.0, unsaved=(), drift=found)
    review = consequences.review(Preview(stack="dev", region="us-east-1", steps=(), findings=()))
    text = report.text(review, live)
    assert "<summary>Drift: 2 of 2 objects: ClusterQueue queue, ConfigMap gone</summary>" in text
    assert "spec.stopPolicy: None -> Hold" in text and "2 Secret: your role may not read" in text
    as_json = report.to_json(review, live)["live"]["drift"]
    assert as_json["compared"] == 2 and as_json["differences"][0]["field"] == "spec.stopPolicy"


def test_files_of_runs_are_not_read() -> None:
    """They are immutable, never updated, and up to a MiB each."""
    files = dataclasses.replace(named("ConfigMap", "v1", "gone"), ignored=(("data",),))
    assert read(World(recorded()), step(), files) == live_drift.LiveDrift(compared=1)


def test_a_preview_without_unchanged_resources_says_how_to_make_one() -> None:
    changed = dataclasses.replace(step(), change=Change.UPDATE)
    (gap,) = read(World(), changed).gaps
    assert "--show-sames" in gap
    new = dataclasses.replace(step(), change=Change.CREATE, old={}, recorded={})
    assert read(World(), new) == live_drift.LiveDrift()
