"""Attempts against other teams, storage and monitoring, each with its closest allowed variant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.domain import naming
from infra.kubernetes.controller_accounts import EPHEMERAL_VOLUMES
from tests.sandbox.escape_attempts import (
    JOB,
    JOBSET,
    KUEUE,
    MASTERS,
    STANDING_POD,
    STANDING_RUN,
    STANDING_WORKLOAD,
    Attempt,
    owned_by,
)
from tests.sandbox.escape_kit import Ask, create, patch
from tests.sandbox.escape_objects import (
    PRODUCTION,
    RESEARCH,
    Json,
    controller,
    job,
    jobset,
    metadata,
    other_run,
    queued,
    template,
)

STANDING_TORCH = other_run("PyTorchJob", gpu=True, meta=queued() | {"name": "standing"})
"""A run whose kind can be scaled."""

STANDING_RUNTIME = other_run("TrainingRuntime", gpu=True, meta={"name": "standing"})
"""The pod template of a TrainJob."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _near(kind: str, *, preferred: bool = False, **of: Any) -> Ask:
    """Return a Job whose pods have an affinity or anti-affinity to others."""
    term = {"topologyKey": naming.ZONE, "labelSelector": {}, **of}
    terms = {_PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}
    affinity = {kind: terms if preferred else {_REQUIRED: [term]}}
    return create(job(template=template(affinity=affinity)))


def against_others() -> Iterator[Attempt]:
    """Affinities that keep pods of other teams off the nodes of a zone."""
    only = ("placement",)
    theirs = [naming.namespace(PRODUCTION)]
    own = _near("podAntiAffinity", namespaces=[naming.namespace(RESEARCH)])
    for name, kind, of in (
        ("keeps all others away", "podAntiAffinity", {"namespaceSelector": {}}),
        ("keeps a team away", "podAntiAffinity", {"namespaces": theirs}),
        ("requires pods of a team", "podAffinity", {"namespaces": theirs}),
    ):
        yield Attempt(f"a pod that {name}", only, _near(kind, **of), own)
    softly = _near("podAntiAffinity", preferred=True, namespaceSelector={})
    its_own = _near("podAntiAffinity", preferred=True)
    yield Attempt("a pod that prefers to keep all others away", only, softly, its_own)
    alone = {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": naming.ZONE}}
    yield Attempt(
        "a JobSet with a zone to itself", only, create(jobset(meta=alone)), create(jobset())
    )
    inner = jobset()
    inner["spec"]["replicatedJobs"][0]["template"]["metadata"] = alone
    yield Attempt("a job of a JobSet with a zone to itself", only, create(inner), create(jobset()))


def _with_volume(**source: Any) -> Ask:
    return create(job(template=template(volumes=[{"name": "more", **source}])))


def with_storage() -> Iterator[Attempt]:
    """Storage that is not the team's."""
    only = ("volumes",)
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Ti"}}}
    claimed = _with_volume(persistentVolumeClaim={"claimName": naming.CHECKPOINTS_CLAIM})
    made = {"volumeClaimTemplate": {"spec": spec}}
    yield Attempt("a volume that comes with its pod", only, _with_volume(ephemeral=made), claimed)
    driver = {"driver": "fsx.csi.aws.com", "volumeAttributes": {"size": "100Ti"}}
    yield Attempt("a volume of any driver", only, _with_volume(csi=driver), claimed)
    policies = [{"templates": [{"metadata": {"name": "more"}, "spec": spec}]}]
    mounting = jobset(volumeClaimPolicies=policies)
    jobs = mounting["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    jobs["containers"][0]["volumeMounts"] = [{"name": "more", "mountPath": "/more"}]
    yield Attempt("a JobSet with its own claims", only, create(mounting), create(jobset()))
    stateful = controller("StatefulSet", gpu=False)
    stateful["spec"]["volumeClaimTemplates"] = policies[0]["templates"]
    plain = create(controller("StatefulSet", gpu=False))
    yield Attempt("a StatefulSet with its own claims", only, create(stateful), plain)
    claim = create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata(RESEARCH),
            "spec": spec,
        }
    )
    for user in (*EPHEMERAL_VOLUMES, JOBSET):
        yield Attempt(
            f"a claim made by {user.split(':')[-1]}", only, claim.by(user, MASTERS), claim
        )


def in_others_names() -> Iterator[Attempt]:
    """Costs, alerts and logs that go to another team."""
    only = ("labels",)
    marked = template()
    marked["metadata"]["labels"][naming.TEAM] = PRODUCTION
    own = template()
    own["metadata"]["labels"][naming.TEAM] = RESEARCH
    yield Attempt(
        "pods in another team's name", only, create(job(template=marked)), create(job(template=own))
    )
    theirs, ours = (
        create(job(gpu=True, meta=queued(**{naming.TEAM: name}))) for name in (PRODUCTION, RESEARCH)
    )
    yield Attempt("a run in another team's name", only, theirs, ours)


def by_side_doors() -> Iterator[Attempt]:
    """Changes of a run, of its pods and of its Workload by other ways than the object itself."""
    only = ("changes",)
    for label, value in ((naming.QUEUE_NAME, PRODUCTION), (naming.QUEUE_NAME, None)):
        change: Json = {"metadata": {"labels": {label: value}}}
        other = patch(STANDING_RUN, {"metadata": {"labels": {"note": value}}}, "status")
        yield Attempt(
            f"a run with {label} {value} by its status",
            only,
            patch(STANDING_RUN, change, "status"),
            other,
        )
    owned = patch(
        STANDING_RUN, {"metadata": owned_by("JobSet", "jobset.x-k8s.io/v1alpha2")}, "status"
    )
    yield Attempt(
        "a run that becomes part of another by its status", only, owned, owned.by(JOBSET, MASTERS)
    )
    scaled = patch(STANDING_TORCH, {"spec": {"replicas": 64}}, "scale")
    yield Attempt("a run scaled past its Workload", only, scaled, scaled.by(KUEUE, MASTERS))
    wider = other_run("TrainingRuntime", gpu=True, meta={})["spec"]["template"]
    wider["spec"]["replicatedJobs"][0]["replicas"] = 64
    noted = {"metadata": {"annotations": {"note": "mine"}}}
    yield Attempt(
        "a TrainJob made wider by its runtime",
        only,
        patch(STANDING_RUNTIME, {"spec": {"template": wider}}),
        patch(STANDING_RUNTIME, noted),
    )
    relabel = patch(STANDING_POD, {"metadata": {"labels": {"app": "other"}}}, "status")
    yield Attempt(
        "a pod taken from its run by its status", ("live-pods",), relabel, relabel.by(JOB, MASTERS)
    )
    boosted, other = (
        patch(STANDING_WORKLOAD, {"metadata": {"annotations": {key: "100"}}})
        for key in ("kueue.x-k8s.io/priority-boost", "example.com/note")
    )
    yield Attempt("a Workload that is boosted", ("workloads",), boosted, other)


def that_stay() -> Iterator[Attempt]:
    """A run that cannot be deleted: the Job controller stops no pod of it any more, Kueue neither."""
    only = ("changes",)
    kept = ["example.com/mine"]
    staying = create(job(gpu=True, meta=queued() | {"finalizers": kept}))
    yield Attempt("a run made to stay", only, staying, staying.by(KUEUE, MASTERS))
    note = patch(STANDING_RUN, {"metadata": {"annotations": {"note": "mine"}}})
    for way, subresource in (("", ""), (" by its status", "status")):
        stay = patch(STANDING_RUN, {"metadata": {"finalizers": kept}}, subresource)
        yield Attempt(f"a run that comes to stay{way}", only, stay, note)


def every() -> list[Attempt]:
    return [
        *against_others(),
        *with_storage(),
        *in_others_names(),
        *by_side_doors(),
        *that_stay(),
    ]
