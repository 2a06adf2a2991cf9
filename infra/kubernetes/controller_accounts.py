"""Users of the controllers that create and change objects in team namespaces.

The names are those of upstream charts and manifests, and of Kubernetes itself; the sandbox uses the same. A user
who can obtain one of them (by a token from kube-system, or by impersonation) can bypass the policies; only
cluster administrators can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from infra.domain import naming
from infra.domain.launcher_support import JOB, KINDS, account
from infra.kubernetes.admission_policy import text, texts

Parent = tuple[str, str]
"""API group and kind of an object that owns others."""


def _kubernetes(name: str) -> str:
    return account("kube-system", name)


KUEUE: Final = (account("kueue-system", "kueue-controller-manager"),)
CRON_JOB: Final = (_kubernetes("cronjob-controller"),)
DAEMON_SET: Final = (_kubernetes("daemon-set-controller"),)
EPHEMERAL_VOLUMES: Final = (_kubernetes("ephemeral-volume-controller"),)
STEERING: Final = (account(naming.STEERING_NAMESPACE, naming.STEERING_ACCOUNT),)
"""Not a controller of runs: it says which flavors of its queue a Workload may have."""
GARBAGE_COLLECTOR: Final = (_kubernetes("generic-garbage-collector"),)
YUNIKORN: Final = (account("yunikorn", "yunikorn-admin"),)
KUBE_SCHEDULER: Final = "system:kube-scheduler"

RUN_CONTROLLERS: Final = (
    *KUEUE,
    *(user for one in KINDS if one is not JOB for user in one.controllers),
    *JOB.controllers,
)
"""Users that create a run's pods and write its status."""

SPEC_WRITERS: Final = (
    *KUEUE,
    *(user for one in KINDS if one.writes_specs for user in one.controllers),
)
"""Users that start and stop a run, and place its parts."""

OWNERS: Final = (
    *RUN_CONTROLLERS,
    *CRON_JOB,
    *DAEMON_SET,
    *YUNIKORN,  # placeholders are owned by the pods that they reserve room for
    *(_kubernetes(f"{kind}-controller") for kind in ("replicaset", "replication", "statefulset")),
)
"""Users that create objects with an owner."""


def _creators(kind: str) -> dict[str, Parent]:
    """Return the users that create objects of a kind for a run, with the kind of that run."""
    return {
        user: (one.group, one.kind)
        for one in KINDS
        if kind in one.creates
        for user in one.controllers
    }


POD_PARENTS: Final = _creators("Pod")
"""Users that create pods of a run, with the kind of run."""

RUN_PARENTS: Final = {one.kind: found for one in KINDS if (found := _creators(one.kind))}
"""The same for kinds of runs that may be part of another run, which then is queued."""


def is_one_of(users: Sequence[str]) -> str:
    return f"request.userInfo.username in {texts(users)}"


def _is_child(user: str, parent: Parent) -> str:
    group, kind = parent
    return (
        f"(request.userInfo.username == {text(user)} && o.kind == {text(kind)} && "
        f"o.apiVersion.startsWith({text(group + '/')}))"
    )


def created_by(parents: Mapping[str, Parent]) -> str:
    """Return CEL: the object has an owner of a kind for which the requesting user creates such objects."""
    children = " || ".join(_is_child(user, parent) for user, parent in parents.items())
    return (
        "object.metadata.?ownerReferences.orValue([])"
        f".exists(o, o.?controller.orValue(false) && ({children}))"
    )


def is_part_of_run() -> str:
    """Return CEL: the object is a run that a controller creates for another run."""
    cases = [
        f"(request.kind.kind == {text(kind)} && {created_by(parents)})"
        for kind, parents in RUN_PARENTS.items()
    ]
    return " || ".join(cases)
