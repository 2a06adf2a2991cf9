"""The dev pods of a team, as the cluster has them."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.domain import dev_pods, naming
from ops import objects
from ops.cluster import (
    Cluster,
    ClusterError,
    ConflictError,
    ForbiddenError,
    Kind,
    context_namespace,
)
from ops.collect import JOBS, PODS, WORKLOADS
from ops.objects import Json

QUEUED, STARTING, RUNNING, STOPPING, ENDED = "queued", "starting", "running", "stopping", "ended"
_QUOTAS: Final = Kind("v1", "resourcequotas", "ResourceQuota")
_SELECTOR: Final = f"{naming.DEV}=true"


@dataclass(frozen=True, kw_only=True)
class DevSession:
    """One dev pod, from its Job and pod."""

    job: str
    """Name of the Job."""
    namespace: str
    owner: str
    state: str
    pod: str = ""
    node: str = ""
    gpus: int = 0
    ends: dt.datetime | None = None
    """When its time limit ends it."""
    why: str = ""
    """Why it waits or has ended."""

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "ends": self.ends.isoformat() if self.ends else None}


def read_sessions(cluster: Cluster, namespace: str | None) -> list[DevSession]:
    """Return the dev pods of a namespace, or of all (None). Raises ForbiddenError."""
    jobs = cluster.items(JOBS, namespace, _SELECTOR)
    pods: dict[str, Json] = {}
    for pod in cluster.items(PODS, namespace, _SELECTOR) if jobs else []:
        owner = f"{objects.meta(pod)['namespace']}/{objects.owner(pod)}"
        known = pods.get(owner)
        if known is None or _created(pod) > _created(known):
            pods[owner] = pod
    waiting = {objects.meta(job)["uid"] for job in jobs if job["spec"].get("suspend")}
    evicted = {
        owner["uid"]: str(objects.condition(workload, "Evicted").get("message") or "")
        for workload in (cluster.items(WORKLOADS, namespace) if waiting else [])
        if objects.condition_is_true(workload, "Evicted")
        for owner in objects.meta(workload).get("ownerReferences") or []
    }
    return [
        _session(job, pods.get(objects.full_name(job)), evicted.get(objects.meta(job)["uid"]))
        for job in jobs
    ]


def find(sessions: list[DevSession], user: str, name: str | None, prefix: str) -> DevSession:
    """Return the user's dev pod of this name; without a name the only one that has not ended,
    apart from the one that copies files.

    `prefix`: beginning of the user's Job names. Raises ClusterError.
    """
    own = [one for one in sessions if one.owner == user]
    if name is not None:
        found = [one for one in own if one.job == f"{prefix}{name}"]
    else:
        copies = f"{prefix}{dev_pods.TRANSFER}"
        found = [one for one in own if one.state != ENDED and one.job != copies]
    if len(found) == 1:
        return found[0]
    names = ", ".join(one.job.removeprefix(prefix) for one in own if one.state != ENDED) or "none"
    asked = f"dev pod {name}: not found" if name else f"NAME: {len(found)} dev pods are yours"
    raise ClusterError(
        f"{asked}; yours that have not ended: {names}; name one of them, or start one: trainyard dev start"
    )


def check_number(cluster: Cluster, namespace: str, team: str) -> None:
    """Raise ClusterError where the team has as many dev pods as its cap; the quota would hold back the pod."""
    with contextlib.suppress(ForbiddenError):
        quota = cluster.get(_QUOTAS, naming.DEV_QUOTA, namespace)
        status = objects.status(quota)
        most, used = (int((status.get(one) or {}).get("pods", -1)) for one in ("hard", "used"))
        if 0 <= most <= used:
            raise ClusterError(
                f"team {team}: {used} of {most} dev pods of the team are running; must be fewer than "
                "caps.devPods.number; end one with trainyard dev stop, or start this one later"
            )


def _created(item: Json) -> str:
    return str(objects.meta(item).get("creationTimestamp") or "")


def _session(job: Json, pod: Json | None, evicted: str | None) -> DevSession:
    template = job["spec"]["template"]["spec"]["containers"][0]
    amounts: Mapping[str, str] = (template.get("resources") or {}).get("requests") or {}
    started = objects.time(objects.status(job).get("startTime"))
    limit = int(job["spec"].get("activeDeadlineSeconds") or 0)
    # If it is admitted again, its program ends at once: a session does not come back unattended.
    state, why = _state(job, pod) if evicted is None else (ENDED, f"preempted: {evicted}")
    return DevSession(
        job=objects.name(job),
        namespace=str(objects.meta(job)["namespace"]),
        owner=str((objects.meta(job).get("annotations") or {}).get(naming.LAUNCHED_BY, "")),
        state=state,
        pod=objects.name(pod) if pod else "",
        node=str((pod or {}).get("spec", {}).get("nodeName") or ""),
        gpus=int(amounts.get(naming.GPU, "0")),
        ends=started + dt.timedelta(seconds=limit) if started and state != ENDED else None,
        why=why,
    )


def _state(job: Json, pod: Json | None) -> tuple[str, str]:
    for kind in ("Complete", "Failed"):
        if objects.condition_is_true(job, kind):
            reason = str(objects.condition(job, kind).get("reason") or kind)
            return ENDED, _said(pod) or reason
    if objects.meta(job).get("deletionTimestamp"):
        return STOPPING, ""
    if pod is None:
        return (QUEUED, "") if job["spec"].get("suspend") else (STARTING, "no pod yet")
    if objects.meta(pod).get("deletionTimestamp"):
        return STOPPING, ""
    if objects.condition_is_true(pod, "Ready"):
        return RUNNING, ""
    return STARTING, _waits(pod)


def _said(pod: Json | None) -> str:
    """Return what the session's program wrote when it ended."""
    for container in objects.containers(pod):
        if ended := objects.state(container, "terminated"):
            return str(ended.get("message") or ended.get("reason") or "").strip()
    return ""


def _waits(pod: Json) -> str:
    for container in objects.containers(pod):
        if waiting := objects.state(container, "waiting"):
            return ": ".join(str(waiting[key]) for key in ("reason", "message") if waiting.get(key))
    return str(objects.condition(pod, "PodScheduled").get("message") or "")


_POLL_S: Final = 1.0
_PREFIX: Final = naming.namespace("")


def team_of(args: argparse.Namespace) -> str:
    """Return the team of --team, else of the context's namespace. Raises ClusterError."""
    if args.team:
        return str(args.team)
    namespace = context_namespace(args.kubeconfig, args.context)
    if not namespace.startswith(_PREFIX):
        raise ClusterError(
            "--team: is missing, and the kubeconfig's context has no team's namespace; pass --team, or once for "
            f"all commands: kubectl config set-context --current --namespace {_PREFIX}TEAM"
        )
    return namespace.removeprefix(_PREFIX)


def create(cluster: Cluster, job: objects.Json, name: str) -> None:
    """Create the Job; one of the same name that has ended is replaced.

    Raises ConflictError if one that has not ended has the name, ClusterError.
    """
    meta = job["metadata"]
    for _ in range(60):
        try:
            cluster.create(JOBS, job)
            return
        except ConflictError:
            pass
        known = read_sessions(cluster, meta["namespace"])
        session = next((one for one in known if one.job == meta["name"]), None)
        if session is None:
            continue
        if session.state not in (ENDED, STOPPING):
            raise ConflictError(
                f"dev pod {name}: exists; open it with trainyard dev shell, end it with trainyard dev stop, or "
                "start another with a NAME of its own"
            )
        if session.state == ENDED:
            cluster.delete(JOBS, meta["name"], meta["namespace"])
        time.sleep(_POLL_S)
    raise ClusterError(f"dev pod {name}: the previous one is still ending; start it again later")


def await_running(
    cluster: Cluster, meta: objects.Json, name: str, show: Callable[[str], None]
) -> DevSession | None:
    """Wait until the dev pod runs, and say what it waits for. None: it has ended instead. Raises ClusterError."""
    told = ""
    while True:
        found = read_sessions(cluster, meta["namespace"])
        session = next((one for one in found if one.job == meta["name"]), None)
        if session is None:
            raise ClusterError(f"dev pod {name}: it was deleted; start it again")
        text = f"{name}: {session.state}" + (f": {session.why}" if session.why else "")
        if text != told:
            show(text)
            told = text
        if session.state == RUNNING:
            return session
        if session.state == ENDED:
            return None
        time.sleep(_POLL_S)
