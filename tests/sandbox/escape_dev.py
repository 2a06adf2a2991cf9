"""Dev pods that are none, or another user's, each with the closest allowed one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from infra.domain import dev_pods, naming
from tests.sandbox.escape_attempts import JOB, MASTERS, STANDING_POD, Attempt, owned_by
from tests.sandbox.escape_kit import Ask, create, patch
from tests.sandbox.escape_objects import (
    IMAGE,
    PRODUCTION,
    RESEARCH,
    Json,
    job,
    jobset,
    pod,
    template,
)
from trainyard.contract import DATA_MOUNT

ALICE, BOB = "alice@example.com", "bob@example.com"
LOWEST = "best-effort-training"
HOURS = 8
_LABEL = {naming.DEV: "true"}


def dev_job(
    owner: str = ALICE, *, gpu: bool = False, labels: Json | None = None, **fields: Any
) -> Json:
    """A dev pod's Job; `fields` replace those of its spec."""
    of_pods = template(gpu=gpu, priorityClassName=LOWEST)
    of_pods["metadata"]["labels"] |= _LABEL
    of_pods["metadata"]["annotations"] = {naming.LAUNCHED_BY: owner}
    queue = {
        naming.QUEUE_NAME: RESEARCH,
        naming.WORKLOAD_PRIORITY: LOWEST,
        naming.MAX_EXEC_SECONDS: str(HOURS * 3600),
    }
    meta = {
        "name": f"{naming.DEV_PREFIX}escape",
        "labels": {**_LABEL, **(queue if gpu else {}), **(labels or {})},
        "annotations": {naming.LAUNCHED_BY: owner},
    }
    spec = {
        "template": of_pods,
        "backoffLimit": 0,
        "activeDeadlineSeconds": HOURS * 3600,
        "suspend": gpu,
        **fields,
    }
    spec.setdefault("parallelism", 1)
    of_pods["spec"]["activeDeadlineSeconds"] = spec["activeDeadlineSeconds"]
    return job(meta=meta, **spec)


def _changed(made: Json, **metadata: Any) -> Json:
    found = copy.deepcopy(made)
    found["metadata"] |= metadata
    return found


def _by_alice(manifest: Json) -> Ask:
    return create(manifest).by(ALICE, MASTERS)


def disguised() -> Iterator[Attempt]:
    """Runs into which their user could open a shell."""
    only = ("dev-pods",)
    good = _by_alice(dev_job())
    labelled = template()
    labelled["metadata"]["labels"] |= _LABEL
    yield Attempt(
        "a run whose pods look like a dev pod", only, create(job(template=labelled)), good
    )
    yield Attempt(
        "a run with a dev pod's name",
        only,
        create(job(meta={"name": f"{naming.DEV_PREFIX}run"})),
        create(job(meta={"name": "run"})),
    )
    unnamed = _changed(dev_job(), name="escape")
    yield Attempt("a dev pod with a run's name", only, _by_alice(unnamed), good)
    gang = jobset(meta={"name": f"{naming.DEV_PREFIX}gang", "labels": _LABEL})
    gang["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = labelled
    yield Attempt("a gang as a dev pod", only, create(gang), good)
    alone = pod(
        meta={
            "name": f"{naming.DEV_PREFIX}alone",
            "labels": _LABEL,
            "annotations": {naming.LAUNCHED_BY: ALICE},
        },
        priorityClassName=LOWEST,
    )
    owned = owned_by("Job", "batch/v1", **_LABEL)
    of_job = _changed(alone, **owned)
    yield Attempt("a dev pod without a Job", only, _by_alice(alone), create(of_job).by(JOB))
    for name, spec in (
        ("two dev pods in one", {"parallelism": 2, "completions": 2}),
        ("a dev pod that starts again", {"backoffLimit": 6}),
        ("a dev pod that stays too long", {"activeDeadlineSeconds": 25 * 3600}),
        ("a dev pod that stays for ever", {"activeDeadlineSeconds": None}),
    ):
        yield Attempt(name, only, _by_alice(dev_job(**spec)), good)
    queued = _by_alice(dev_job(gpu=True))
    longer = {naming.MAX_EXEC_SECONDS: "864000"}
    yield Attempt(
        "a dev pod that stays longer than it says",
        only,
        _by_alice(dev_job(gpu=True, labels=longer)),
        queued,
    )
    first = {naming.WORKLOAD_PRIORITY: "research-training"}
    yield Attempt(
        "a dev pod before runs in the queue",
        only,
        _by_alice(dev_job(gpu=True, labels=first)),
        queued,
    )
    ranked = dev_job()
    ranked["spec"]["template"]["spec"]["priorityClassName"] = "research-training"
    yield Attempt("a dev pod with a run's priority", only, _by_alice(ranked), good)
    foreign = {naming.QUEUE_NAME: PRODUCTION}
    yield Attempt(
        "a dev pod in another team's queue",
        ("queue",),
        _by_alice(dev_job(gpu=True, labels=foreign)),
        queued,
    )


def forged() -> Iterator[Attempt]:
    """Owners other than the user who creates the dev pod."""
    only = ("dev-pods",)
    good = _by_alice(dev_job())
    forged_by = ("dev-pods", "ownership")
    yield Attempt("a dev pod of another user", forged_by, _by_alice(dev_job(BOB)), good)
    inside = dev_job()
    inside["spec"]["template"]["metadata"]["annotations"] = {naming.LAUNCHED_BY: BOB}
    yield Attempt("a dev pod whose pod is another user's", only, _by_alice(inside), good)
    nobody = _changed(dev_job(), annotations={})
    nobody["spec"]["template"]["metadata"]["annotations"] = {}
    yield Attempt("a dev pod of nobody", only, _by_alice(nobody), good)


def beyond_caps() -> Iterator[Attempt]:
    """Dev pods beyond the caps of the team: 4 GPUs, 8 hours, 10 GPU-hours."""
    only = ("dev-caps",)
    member = naming.group(RESEARCH, "researcher")

    def by_member(manifest: Json) -> Ask:
        return create(manifest).by(ALICE, member)

    def with_gpus(number: int, hours: int) -> Json:
        found = dev_job(gpu=True, activeDeadlineSeconds=hours * 3600)
        found["metadata"]["labels"][naming.MAX_EXEC_SECONDS] = str(hours * 3600)
        amounts = found["spec"]["template"]["spec"]["containers"][0]["resources"]
        for part in amounts.values():
            part[naming.GPU] = str(number)
        return found

    good = by_member(with_gpus(4, 2))
    yield Attempt("a dev pod with more GPUs than the cap", only, by_member(with_gpus(5, 1)), good)
    yield Attempt(
        "a dev pod that stays longer than the cap",
        only,
        by_member(dev_job(activeDeadlineSeconds=9 * 3600)),
        by_member(dev_job()),
    )
    yield Attempt("a dev pod beyond the cost cap", only, by_member(with_gpus(4, 3)), good)
    before = with_gpus(4, 1)
    hidden = copy.deepcopy(before["spec"]["template"]["spec"]["containers"][0])
    before["spec"]["template"]["spec"]["initContainers"] = [hidden | {"name": "before"}]
    yield Attempt("a dev pod with GPUs before it starts", only, by_member(before), good)
    uncounted = dev_job()
    del uncounted["spec"]["template"]["spec"]["activeDeadlineSeconds"]
    yield Attempt(
        "a dev pod that the quota does not count",
        ("dev-pods",),
        by_member(uncounted),
        by_member(dev_job()),
    )


def transfers() -> Iterator[Attempt]:
    """Pods as `trainyard data` starts them, which may write datasets, with something else in them."""
    good = _by_alice(_transfer())
    foreign = _transfer(image=f"docker.io/library/tool@{IMAGE.partition('@')[2]}")
    yield Attempt("a transfer pod with a foreign image", ("images",), _by_alice(foreign), good)
    tagged = _transfer(image=IMAGE.partition("@")[0] + ":latest")
    yield Attempt("a transfer pod with an image by tag", ("images",), _by_alice(tagged), good)
    token = _transfer()
    token["spec"]["template"]["spec"]["automountServiceAccountToken"] = True
    yield Attempt("a transfer pod with a token", ("dev-pods",), _by_alice(token), good)
    stays = _transfer()
    stays["spec"]["activeDeadlineSeconds"] = 25 * 3600
    stays["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 25 * 3600
    yield Attempt("a transfer pod that stays too long", ("dev-pods",), _by_alice(stays), good)
    theirs = ("dev-pods", "ownership")
    yield Attempt("a transfer pod of another user", theirs, _by_alice(_transfer(BOB)), good)


def _transfer(owner: str = ALICE, **container: Any) -> Json:
    """A dev pod that may write the team's datasets; `container` replaces fields of its container."""
    made = dev_job(owner)
    made["metadata"]["name"] = dev_pods.job_name(owner, dev_pods.TRANSFER)
    inside = made["spec"]["template"]["spec"]
    claim = {"claimName": naming.DATASETS_CLAIM}
    inside["volumes"] = [
        *inside.get("volumes", []),
        {"name": "datasets", "persistentVolumeClaim": claim},
    ]
    [main] = inside["containers"]
    mount = {"name": "datasets", "mountPath": DATA_MOUNT}
    mounts = [*main.get("volumeMounts", []), mount]
    inside["containers"] = [main | {"volumeMounts": mounts} | container]
    return made


def taken_over(alices: Json) -> Iterator[Ask]:
    """Changes that would make Alice's standing dev pod Bob's."""
    theirs = {"metadata": {"annotations": {naming.LAUNCHED_BY: BOB}}}
    for subresource in ("", "status"):
        yield patch(alices, theirs, subresource).by(BOB, MASTERS)


def connect(name: str, kind: str, user: str, *groups: str) -> Ask:
    """A request to connect to a pod, as kubectl starts it; it is not upgraded, so nothing is connected."""
    namespace = naming.namespace(RESEARCH)
    query = {"ports": "80"} if kind == "portforward" else {"command": "id", "stdout": "true"}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/{kind}"
    return Ask("POST", path, query=query).by(user, *groups)


def every() -> list[Attempt]:
    return [*disguised(), *forged(), *beyond_caps(), *transfers()]


RUNS_POD = STANDING_POD["metadata"]["name"]
