"""Ways in which a member of a team could use the right to submit runs for more than that."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from infra.domain import naming
from infra.tenancy import team
from ops.submission import create as create_objects
from tests.sandbox.escape_attempts import Attempt
from tests.sandbox.escape_kit import Ask, create, delete, patch
from tests.sandbox.escape_objects import (
    PRODUCTION,
    RESEARCH,
    Json,
    job,
    jobset,
    launched_objects,
    metadata,
)
from training.spec import Groups

ADA, BOB, LEAD, CI = "ada@example.com", "bob@example.com", "lead@example.com", "ci"
_RESEARCHER = naming.group(RESEARCH, "researcher")
RECORD = team.platform_record(RESEARCH, "{}")


def by_member(ask: Ask, user: str = ADA) -> Ask:
    return ask.by(user, _RESEARCHER)


def _meta(by: str, run_id: str, team_name: str = RESEARCH, **labels: str) -> Json:
    own = {
        naming.QUEUE_NAME: team_name,
        naming.RUN_ID: run_id,
        naming.MAX_EXEC_SECONDS: "3600",
        **labels,
    }
    return {
        "labels": {key: value for key, value in own.items() if value},
        "annotations": {naming.LAUNCHED_BY: by} if by else {},
    }


def submitted(by: str = ADA, run_id: str = "escape", **labels: str) -> Json:
    """A run as `trainyard run submit` creates it."""
    return job(gpu=True, meta=_meta(by, run_id, **labels))


def part(by: str = ADA, name: str = "escape", run_id: str = "escape", claimed: str = ADA) -> Json:
    """The ConfigMap of a run."""
    record = json.dumps({"launched_by": claimed, "run_id": run_id}, indent=2)
    meta = _meta(by, run_id) | {"name": name}
    for name in (naming.QUEUE_NAME, naming.MAX_EXEC_SECONDS):
        meta["labels"].pop(name)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(RESEARCH) | meta,
        "immutable": True,
        "data": {"run.json": record},
    }


def _named(manifest: Json, name: str) -> Json:
    found = copy.deepcopy(manifest)
    found["metadata"]["name"] = name
    return found


def group(number: str = "0", groups: str = "2", name: str = "escape-g0") -> Json:
    """A group of the run `escape`, as `trainyard run submit` creates it; "": without the label."""
    labels = {naming.GROUP: number, naming.GROUPS: groups, naming.MAX_EXEC_SECONDS: "1800"}
    return _named(jobset(gpu=True, meta=_meta(ADA, "escape", **labels)), name)


def launched_by_member(launcher: str, groups: Groups | None = None) -> list[Json]:
    """All objects of a rendered run, as `trainyard run submit` creates them."""
    objects = launched_objects(launcher, by=ADA, groups=groups)
    return [create_objects.as_user(one, ADA) for one in objects]


STANDING = "standing-submitted"
STANDING_RUN = _named(submitted(run_id=STANDING), STANDING)
STANDING_PART = part(name=STANDING, run_id=STANDING)
STANDING_OBJECTS = (by_member(create(STANDING_PART)), by_member(create(STANDING_RUN)))


def _with_pod(manifest: Json, **changes: Any) -> Json:
    found = copy.deepcopy(manifest)
    found["spec"]["template"]["spec"] |= changes
    return found


def every() -> Iterator[Attempt]:
    yield from _of_ownership()
    yield from _of_submissions()
    yield from _of_groups()
    yield from _of_other_walls()
    yield from _of_the_record()
    yield from _of_caps()


def _of_ownership() -> Iterator[Attempt]:
    rule = ("ownership",)
    mine = by_member(create(submitted()))
    unsigned = submitted(by="")
    yield Attempt("a run under another's name", rule, by_member(create(submitted(BOB))), mine)
    yield Attempt("a run without a name", rule, by_member(create(unsigned)), mine)
    yield Attempt(
        "a run under another's name by CI",
        rule,
        create(submitted(ADA)).by(CI, naming.DEPLOYER_GROUP),
        create(unsigned).by(CI, naming.DEPLOYER_GROUP),
    )
    yield Attempt(
        "a part of a run under another's name",
        rule,
        by_member(create(part(BOB))),
        by_member(create(part())),
    )
    gone = delete(STANDING_RUN, propagationPolicy="Background")
    yield Attempt("another user's run deleted", rule, by_member(gone, BOB), by_member(gone))
    lead = gone.by(LEAD, naming.group(RESEARCH, "lead"))
    yield Attempt("another user's run deleted, not by a lead", rule, by_member(gone, BOB), lead)
    files = delete(STANDING_PART)
    yield Attempt("another user's files deleted", rule, by_member(files, BOB), by_member(files))
    noted = patch(STANDING_PART, {"metadata": {"annotations": {"note": "mine"}}})
    yield Attempt("another user's files changed", rule, by_member(noted, BOB), by_member(noted))
    for manifest in (STANDING_RUN, STANDING_PART):
        renamed = {"metadata": {"annotations": {naming.LAUNCHED_BY: BOB}}}
        harmless = {"metadata": {"annotations": {"note": "mine"}}}
        kind = manifest["kind"]
        yield Attempt(
            f"{kind} given another launcher",
            rule,
            patch(manifest, renamed),
            patch(manifest, harmless),
        )


def _of_submissions() -> Iterator[Attempt]:
    rule = ("submissions",)
    mine = by_member(create(submitted()))
    raw = job(meta={"annotations": {naming.LAUNCHED_BY: ADA}})
    yield Attempt("a Job that is not a run", rule, by_member(create(raw)), mine)
    yield Attempt(
        "a run with the id of another", rule, by_member(create(submitted(run_id=STANDING))), mine
    )
    other_name = _named(submitted(run_id=STANDING), f"{STANDING}-2")
    yield Attempt("a run named after another's part", rule, by_member(create(other_name)), mine)
    pods: dict[str, Json] = {
        "another service account": {"serviceAccountName": "default"},
        "a token": {"automountServiceAccountToken": True},
    }
    for name, changes in pods.items():
        attempt = by_member(create(_with_pod(submitted(), **changes)))
        yield Attempt(f"a run with {name}", rule, attempt, mine)
    prepares = {naming.COMPONENT: naming.DATASET_COMPONENT}
    queued = submitted(run_id="", **prepares)
    yield Attempt("a preparation that queues for GPUs", rule, by_member(create(queued)), mine)
    files = by_member(create(part()))
    yield Attempt(
        "a ConfigMap that is no part of a run", rule, by_member(create(part(run_id=""))), files
    )
    sweeps = part(run_id="", name="sweep-lr-v1")
    del sweeps["immutable"]
    sweeps["data"] = {"sweep.json": "{}"}
    sweeps["metadata"]["labels"] = {naming.COMPONENT: "sweep", naming.SWEEP: "lr-v1"}
    for name, wrong in (
        ("under another name", _named(sweeps, "escape")),
        ("of another user", part(BOB, run_id="", name="sweep-lr-v1") | {"immutable": False}),
    ):
        wrong["metadata"]["labels"] = dict(sweeps["metadata"]["labels"])
        rules = rule if name == "under another name" else ("ownership",)
        wrong["data"] = sweeps["data"]
        yield Attempt(
            f"the state of a sweep {name}",
            rules,
            by_member(create(wrong)),
            by_member(create(sweeps)),
        )
    yield Attempt(
        "files under another run's id", rule, by_member(create(part(run_id="other"))), files
    )
    yield Attempt(
        "a run record that names another", rule, by_member(create(part(claimed=BOB))), files
    )
    twice = part()
    twice["data"]["run.json"] += f'"launched_by": "{BOB}"'
    yield Attempt("a run record that names two", rule, by_member(create(twice)), files)
    service: Json = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(RESEARCH, annotations={naming.LAUNCHED_BY: ADA}),
        "spec": {"clusterIP": "None", "selector": {"app": "escape"}},
    }
    of_run = copy.deepcopy(service)
    of_run["metadata"]["labels"] = {naming.RUN_ID: "escape"}
    yield Attempt(
        "a Service of no run", rule, by_member(create(service)), by_member(create(of_run))
    )


def _of_groups() -> Iterator[Attempt]:
    """A group is named after its run, and is counted as its run says."""
    mine = by_member(create(group()))
    for name, wrong in {
        "without a number": group(""),
        "under another's number": group("1"),
        "beyond the run's count": group("2", name="escape-g2"),
        "beyond the count of none": group("1", groups="", name="escape-g1"),
        "with its number written otherwise": group("00", name="escape-g00"),
        "that is no number": group("x", name="escape-gx"),
        "under its run's id": group(name="escape"),
        "of another's run": _named(group(), f"{STANDING}-g0"),
    }.items():
        yield Attempt(f"a group {name}", ("submissions",), by_member(create(wrong)), mine)
    wide = by_member(create(group(groups="5")))
    few = by_member(create(group(groups="4")))
    yield Attempt("groups beyond the cap", ("caps",), wide, few)
    gang = group()
    gang["spec"]["replicatedJobs"][0]["replicas"] = 3
    pair = group()
    pair["spec"]["replicatedJobs"][0]["replicas"] = 2
    yield Attempt(
        "groups of gangs beyond the cap",
        ("caps",),
        by_member(create(gang)),
        by_member(create(pair)),
    )


def _of_other_walls() -> Iterator[Attempt]:
    """What the walls of before stop when a member of a team tries it."""
    mine = by_member(create(submitted()))
    foreign = job(gpu=True, meta=_meta(ADA, "escape", PRODUCTION))
    yield Attempt("another team's queue, by a member", ("queue",), by_member(create(foreign)), mine)
    first = job(gpu=True, meta=_meta(ADA, "escape"))
    first["metadata"]["labels"][naming.WORKLOAD_PRIORITY] = "production-training"
    yield Attempt("a higher priority, by a member", ("priority",), by_member(create(first)), mine)
    changed = part()
    del changed["immutable"]
    yield Attempt(
        "files that can be changed, by a member",
        ("run-files",),
        by_member(create(changed)),
        by_member(create(part())),
    )
    whole = jobset(gpu=True, meta=_meta(ADA, "escape"))
    labelled = copy.deepcopy(whole)
    labelled["metadata"]["labels"][naming.TEAM] = PRODUCTION
    yield Attempt(
        "another team's label, by a member",
        ("labels",),
        by_member(create(labelled)),
        by_member(create(whole)),
    )


def _of_the_record() -> Iterator[Attempt]:
    rule = ("platform-record",)
    ci = (CI, naming.DEPLOYER_GROUP)
    change = patch(RECORD, {"data": {"platform.json": "{}", "more": "x"}})
    yield Attempt("a Platform record changed by CI", rule, change.by(*ci), change)
    yield Attempt("a Platform record deleted by CI", rule, delete(RECORD).by(*ci), delete(RECORD))


def _of_caps() -> Iterator[Attempt]:
    """Runs beyond the caps of the team: 4 nodes, 2 hours, 100 GPU-hours at 30 GPUs a node."""
    rule = ("caps",)
    mine = by_member(create(submitted()))
    many = {"parallelism": 5, "completions": 5}
    wide = submitted()
    wide["spec"] |= many
    yield Attempt("more nodes than the cap", rule, by_member(create(wide)), mine)
    child = {"replicas": 5}
    gang = jobset(gpu=True, meta=_meta(ADA, "escape"))
    few = copy.deepcopy(gang)
    gang["spec"]["replicatedJobs"][0] |= child
    yield Attempt("a gang beyond the cap", rule, by_member(create(gang)), by_member(create(few)))
    for name, seconds in (("longer than the cap", "7201"), ("without a time limit", "")):
        longer = submitted(**{naming.MAX_EXEC_SECONDS: seconds})
        yield Attempt(f"a run {name}", rule, by_member(create(longer)), mine)
    costly = submitted()
    costly["spec"] |= {"parallelism": 4, "completions": 4}
    yield Attempt("a run beyond the cost cap", rule, by_member(create(costly)), mine)
    deployed = copy.deepcopy(wide)
    del deployed["metadata"]["annotations"]
    by_ci = create(deployed).by(CI, naming.DEPLOYER_GROUP)
    yield Attempt("more nodes than the cap, not by CI", rule, by_member(create(wide)), by_ci)
