"""Controllers that make and change objects in a team's namespace, by the users that they are.

The names are those of the upstream charts and manifests, and of Kubernetes itself; the sandbox's controllers
have the same. Who can become one of them (a token from kube-system, or the right to impersonate) can pass the
walls: only cluster administrators can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from infra.domain.scheduler import Scheduler
from infra.kubernetes.admission_policy import text, texts

Parent = tuple[str, str]
"""API group and kind of an object that owns others."""


def _account(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def _kubernetes(name: str) -> str:
    return _account("kube-system", name)


KUEUE: Final = (_account("kueue-system", "kueue-controller-manager"),)
JOBSET: Final = (
    _account("jobset-system", "jobset-controller-manager"),  # its manifests
    _account("jobset-system", "jobset-controller"),  # its chart
)
TRAINER: Final = (
    _account("kubeflow-system", "kubeflow-trainer-controller-manager"),  # its manifests
    # Its chart, by the name of our release.
    _account("kubeflow-system", "kubeflowtrainer-kubeflow-trainer-controller-manager"),
)
TRAINING_OPERATOR: Final = (_account("kubeflow", "training-operator"),)
MPI_OPERATOR: Final = (_account("mpi-operator", "mpi-operator"),)
JOB: Final = (_kubernetes("job-controller"),)
CRON_JOB: Final = (_kubernetes("cronjob-controller"),)
DAEMON_SET: Final = (_kubernetes("daemon-set-controller"),)
EPHEMERAL_VOLUMES: Final = (_kubernetes("ephemeral-volume-controller"),)
GARBAGE_COLLECTOR: Final = (_kubernetes("generic-garbage-collector"),)
VOLCANO: Final = (_account("volcano-system", "volcano-scheduler"),)
YUNIKORN: Final = (_account("yunikorn", "yunikorn-admin"),)

BINDERS: Final[Mapping[Scheduler, tuple[str, ...]]] = {
    Scheduler.KUEUE: ("system:kube-scheduler",),
    Scheduler.VOLCANO: ("system:kube-scheduler", *VOLCANO),
    Scheduler.YUNIKORN: ("system:kube-scheduler", *YUNIKORN),
    Scheduler.NATIVE: ("system:kube-scheduler",),
}
"""Who places pods, by the stack's scheduler."""

RUN_CONTROLLERS: Final = (*KUEUE, *JOBSET, *TRAINER, *TRAINING_OPERATOR, *MPI_OPERATOR, *JOB)
"""Who turns a run into pods, and says how it is."""

SPEC_WRITERS: Final = (*KUEUE, *JOBSET, *TRAINER, *MPI_OPERATOR)
"""Who starts and stops a run, and tells its parts where to go."""

OWNERS: Final = (
    *RUN_CONTROLLERS,
    *CRON_JOB,
    *DAEMON_SET,
    *YUNIKORN,  # its placeholders belong to the pods that they keep room for
    *(_kubernetes(f"{kind}-controller") for kind in ("replicaset", "replication", "statefulset")),
)
"""Who makes objects that belong to others."""

POD_PARENTS: Final[Mapping[str, Parent]] = {
    **dict.fromkeys(JOB, ("batch", "Job")),
    **dict.fromkeys(TRAINING_OPERATOR, ("kubeflow.org", "PyTorchJob")),
    **dict.fromkeys(MPI_OPERATOR, ("kubeflow.org", "MPIJob")),
}
"""Who makes the pods of a run, and of what kind the run is."""

RUN_PARENTS: Final[Mapping[str, Mapping[str, Parent]]] = {
    "Job": {
        **dict.fromkeys(JOBSET, ("jobset.x-k8s.io", "JobSet")),
        **dict.fromkeys(MPI_OPERATOR, ("kubeflow.org", "MPIJob")),
    },
    "JobSet": dict.fromkeys(TRAINER, ("trainer.kubeflow.org", "TrainJob")),
}
"""The same for kinds of runs that may be a part of another run, which then is what queues."""


def is_one_of(users: Sequence[str]) -> str:
    """CEL: one of them asks."""
    return f"request.userInfo.username in {texts(users)}"


def _is_child(user: str, parent: Parent) -> str:
    group, kind = parent
    return (
        f"(request.userInfo.username == {text(user)} && o.kind == {text(kind)} && "
        f"o.apiVersion.startsWith({text(group + '/')}))"
    )


def created_by(parents: Mapping[str, Parent]) -> str:
    """CEL: the object is made by a controller, for an object of the kind that it makes such objects for."""
    children = " || ".join(_is_child(user, parent) for user, parent in parents.items())
    return (
        "object.metadata.?ownerReferences.orValue([])"
        f".exists(o, o.?controller.orValue(false) && ({children}))"
    )


def is_part_of_run() -> str:
    """CEL: the object is a run that a controller makes for a greater one."""
    cases = [
        f"(request.kind.kind == {text(kind)} && {created_by(parents)})"
        for kind, parents in RUN_PARENTS.items()
    ]
    return " || ".join(cases)
