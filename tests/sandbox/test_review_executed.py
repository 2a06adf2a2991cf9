"""A sample of changes, reviewed and then carried out: the cluster shows what `stack review` predicted."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox.service_config import KEEPS_RUNNING
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until
from tests.sandbox.stack_kit import Json, Stack, base, opened, run, team

pytestmark = [pytest.mark.sandbox, pytest.mark.full_only, pytest.mark.timeout(3600)]

Consequence = tuple[str, str, str]
"""What, name, what happens to it."""
PLACED_S = 600.0
SUBMITTED = "submitted-v1-0a0a0a0a"


def submit(cluster: Cluster, stack: Stack, run_id: str) -> None:
    """Launch a copy of the stack's run by hand, whose pods run until they are deleted; wait for them."""
    steps = json.loads((stack.folder / "preview.json").read_text())["steps"]
    (run,) = [s["newState"]["inputs"] for s in steps if s["urn"].split("::")[2].endswith(":JobSet")]
    job = json.loads(json.dumps(run).replace(run["metadata"]["name"], run_id))
    job["metadata"]["labels"]["trainyard.dev/run"] = run_id.partition("-")[0]
    job["metadata"]["labels"].pop("app.kubernetes.io/managed-by", None)
    for one in job["spec"]["replicatedJobs"]:
        about = one["template"]["spec"]["template"].setdefault("metadata", {})
        about.setdefault("annotations", {})[KEEPS_RUNNING] = "true"
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(job))
    until(lambda: bool(gangs(cluster).get(run_id)), f"{run_id} runs", PLACED_S)


def gangs(cluster: Cluster) -> dict[str, frozenset[str]]:
    """The uids of the running pods of each run whose pods run until they are deleted."""
    found: dict[str, set[str]] = {}
    for one in json.loads(cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]:
        meta = one["metadata"]
        kept = KEEPS_RUNNING in (meta.get("annotations") or {})
        if kept and one["status"].get("phase") == "Running" and "deletionTimestamp" not in meta:
            found.setdefault(meta["labels"]["trainyard.dev/run-id"], set()).add(meta["uid"])
    return {run_id: frozenset(uids) for run_id, uids in found.items()}


def moved(cluster: Cluster, before: Mapping[str, frozenset[str]]) -> bool:
    """Whether all pods of these gangs are others than before, and run."""
    now = gangs(cluster)
    return all(now.get(run_id) and not now[run_id] & uids for run_id, uids in before.items())


World = dict[str, dict[str, Any]]
"""By kind of consequence, what there is by its name; equal values are the same thing."""


def observed(cluster: Cluster) -> World:
    """Runs by their uid and those of their running pods, data by its uid, quotas by their limits."""
    pods = gangs(cluster)

    def items(kinds: str) -> list[Json]:
        listed: list[Json] = json.loads(cluster.kubectl("get", kinds, "-A", "-o", "json"))["items"]
        teams = "trainyard.dev/team"
        own = [one for one in listed if teams in (one["metadata"].get("labels") or {})]
        return [*own, *(one for one in listed if one["kind"] == "Cohort")]

    def name(one: Json) -> str:
        meta = one["metadata"]
        return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])

    limits = items("resourcequotas,clusterqueues,cohorts")
    data = items("namespaces,persistentvolumeclaims")
    gone = "deletionTimestamp"
    return {
        "run": {
            one["metadata"]["name"]: (one["metadata"]["uid"], pods.get(one["metadata"]["name"]))
            for one in items("jobsets")
            if gone not in one["metadata"]
        },
        "quota": {
            name(one): one["spec"].get("hard") or one["spec"].get("resourceGroups")
            for one in limits
        },
        "data": {name(one): one["metadata"]["uid"] for one in data},
    }


def consequences(before: World, after: World) -> set[Consequence]:
    """What differs, in the words of a review. New data is no consequence."""
    words = {"run": ("started", "stopped", "restarted"), "quota": ("added", "deleted", "changed")}
    words["data"] = ("", "deleted", "replaced")
    found: set[Consequence] = set()
    for what, (new, lost, other) in words.items():
        a, b = before[what], after[what]
        found |= {(what, name, new) for name in b.keys() - a.keys() if new}
        found |= {(what, name, lost) for name in a.keys() - b.keys()}
        found |= {(what, name, other) for name in a.keys() & b.keys() if a[name] != b[name]}
    return {one for one in found if not (one[0] == "quota" and before["quota"].get(one[1]) == [])}


def predicted(review: Json) -> set[Consequence]:
    """What a review says of runs, quotas and data."""
    return {
        (one["what"], one["name"], one["does"])
        for one in review["consequences"]
        if one["what"] in ("run", "quota", "data") and one.get("certain", True)
    }


Change = Callable[[Json, list[Json]], None]


def less_gpus(values: Json, runs: list[Json]) -> None:
    values["teams"][0]["quota"]["gpus"] = 16


def more_guaranteed(values: Json, runs: list[Json]) -> None:
    values["teams"][0]["guaranteed"] = {"fleet-spot": 3, "fleet-ondemand": 1}


def smaller_pool(values: Json, runs: list[Json]) -> None:
    for pool in values["nodePools"]:
        if pool["name"] == "fleet-spot":
            pool["min"] = pool["max"] = 6


def second_team(values: Json, runs: list[Json]) -> None:
    values["teams"].append(team("vision", {"fleet-ondemand": 1}))


def without_the_pool(values: Json, runs: list[Json]) -> None:
    """A pool goes under the run that was submitted; it is queued again on the one that is left."""
    values["nodePools"] = [p for p in values["nodePools"] if p["name"] != "fleet-spot"]
    values["teams"][0]["guaranteed"].pop("fleet-spot")
    runs.clear()


def without_the_team(values: Json, runs: list[Json]) -> None:
    values["teams"] = [one for one in values["teams"] if one["name"] != "vision"]


def new_run(values: Json, runs: list[Json]) -> None:
    runs.append(run("second"))


def next_version(values: Json, runs: list[Json]) -> None:
    runs[:] = [run("first", version=2), *runs[1:]]


def edited_in_place(values: Json, runs: list[Json]) -> None:
    runs[0]["overrides"]["seed"] = 5


def without_a_run(values: Json, runs: list[Json]) -> None:
    runs.pop()


def nothing(values: Json, runs: list[Json]) -> None:
    """Change nothing."""


CHANGES: list[Change] = [
    nothing,
    less_gpus,
    more_guaranteed,
    second_team,
    new_run,
    smaller_pool,
    next_version,
    edited_in_place,
    without_a_run,
    without_the_team,
]
"""In this order, each on top of the ones before."""


@pytest.fixture
def stack(cluster: Cluster, tmp_path: Path) -> Iterator[Stack]:
    with opened(tmp_path, cluster) as made:
        yield made


def test_the_predicted_consequences_are_those_of_the_update(cluster: Cluster, stack: Stack) -> None:
    values, runs = base(), [run("first")]
    stack.write(values, runs)
    stack.up()
    right = said = happened = 0
    for change in CHANGES:
        before = observed(cluster)
        values, runs = copy.deepcopy(values), copy.deepcopy(runs)
        change(values, runs)
        stack.write(values, runs)
        review = stack.review()
        stack.up()
        expected, found = predicted(review), consequences(before, observed(cluster))
        print(f"{change.__name__}: {sorted(found)}")
        assert expected == found, change.__name__
        assert bool(review["editedRuns"]) == (change is edited_in_place)
        right += len(expected & found)
        said, happened = said + len(expected), happened + len(found)
    print(f"{len(CHANGES)} changes carried out: {said} consequences predicted, {happened} happened")
    assert right == said == happened and right > 10


def test_a_pool_that_is_removed_under_a_submitted_run_restarts_it(
    cluster: Cluster, stack: Stack
) -> None:
    values = base()
    values["teams"][0]["guaranteed"] = {"fleet-spot": 2, "fleet-ondemand": 1}
    stack.write(values, [run("first")])
    stack.up()
    stack.review()
    submit(cluster, stack, SUBMITTED)
    before, pods = observed(cluster), gangs(cluster)
    (node,) = nodes_of(cluster, pods[SUBMITTED])
    assert node.startswith("fleet-spot-"), node
    without_the_pool(values, runs := [run("first")])
    stack.write(values, runs)
    review = stack.review()
    (told,) = [one for one in review["consequences"] if one["name"] == SUBMITTED]
    assert told["does"] == "restarted" and "pool fleet-spot deleted" in told["detail"]
    (lost,) = [one for one in review["live"]["unsaved"] if one["run"] == SUBMITTED]
    assert lost["gpus"] == 8 and lost["gpuHours"] > 0
    stack.up()
    until(lambda: moved(cluster, pods), "the run is on another pool", PLACED_S)
    (node,) = nodes_of(cluster, gangs(cluster)[SUBMITTED])
    assert node.startswith("fleet-ondemand-"), node
    assert predicted(review) == consequences(before, observed(cluster))
    cluster.kubectl("delete", "jobset", SUBMITTED, "-n", "team-research")


def nodes_of(cluster: Cluster, uids: frozenset[str]) -> set[str]:
    pods = json.loads(cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]
    return {one["spec"]["nodeName"] for one in pods if one["metadata"]["uid"] in uids}
