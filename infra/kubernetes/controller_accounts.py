"""Controllers that make and change objects in a team's namespace, by the users that they are.

The names are those of the upstream charts and manifests, and of Kubernetes itself; the sandbox's controllers
have the same. Who can become one of them (a token from kube-system, or the right to impersonate) can pass the
policies: only cluster administrators can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

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
GARBAGE_COLLECTOR: Final = (_kubernetes("generic-garbage-collector"),)
YUNIKORN: Final = (account("yunikorn", "yunikorn-admin"),)
KUBE_SCHEDULER: Final = "system:kube-scheduler"

RUN_CONTROLLERS: Final = (
    *KUEUE,
    *(user for one in KINDS if one is not JOB for user in one.controllers),
    *JOB.controllers,
)
"""Who turns a run into pods, and says how it is."""

SPEC_WRITERS: Final = (
    *KUEUE,
    *(user for one in KINDS if one.writes_specs for user in one.controllers),
)
"""Who starts and stops a run, and tells its parts where to go."""

OWNERS: Final = (
    *RUN_CONTROLLERS,
    *CRON_JOB,
    *DAEMON_SET,
    *YUNIKORN,  # its placeholders belong to the pods that they keep room for
    *(_kubernetes(f"{kind}-controller") for kind in ("replicaset", "replication", "statefulset")),
)
"""Who makes objects that belong to others."""


def _creators(kind: str) -> dict[str, Parent]:
    """Who creates objects of a kind for a run, and the kind of that run."""
    return {
        user: (one.group, one.kind)
        for one in KINDS
        if kind in one.creates
        for user in one.controllers
    }


POD_PARENTS: Final = _creators("Pod")
"""Who makes the pods of a run, and of what kind the run is."""

RUN_PARENTS: Final = {one.kind: found for one in KINDS if (found := _creators(one.kind))}
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
