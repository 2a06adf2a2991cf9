"""Wait until an object is ready, as the official plugin does, or deleted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.provider.awaiters import platform, pods, services, workloads
from sandbox.provider.awaiters.progress import Check, Progress, condition, explain, waiting
from sandbox.provider.cluster import Cluster
from sandbox.provider.errors import (
    ApiError,
    Cancelled,
    NotInitialized,
    UnknownKind,
    Unreachable,
)
from sandbox.provider.objects import Object, at, describe, kind_of

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 1.0
DELETION_SECONDS = 300.0
"""Default timeout of a deletion."""

WAKE_SECONDS = 5.0
WAKE = "trainyard.dev/wake"
"""Annotation whose change has the controller of an object look at it again."""
OVERLOOKED = frozenset({("kueue.x-k8s.io", "Topology")})
"""Kinds whose controller may keep a deleted object for ever: Kueue 0.19.2 looks at a topology when it is
deleted and a second after its last flavor is gone, and not again where its cache lags behind."""

Report = Callable[[str], None]
"""Shows what a resource is waiting for; an empty text clears it."""


@dataclass(frozen=True)
class Awaiter:
    """Readiness check of a kind with its default timeout."""

    check: Check
    seconds: float


AWAITERS: dict[tuple[str, str], Awaiter] = {
    ("", "PersistentVolume"): Awaiter(platform.volume, 300),
    ("", "PersistentVolumeClaim"): Awaiter(platform.claim, 300),
    ("", "Pod"): Awaiter(pods.pod, 300),
    ("", "ReplicationController"): Awaiter(workloads.replication_controller, 600),
    ("", "ResourceQuota"): Awaiter(platform.resource_quota, 300),
    ("", "Secret"): Awaiter(platform.secret, 300),
    ("", "Service"): Awaiter(services.service, 600),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Awaiter(platform.resource_definition, 60),
    ("apps", "DaemonSet"): Awaiter(workloads.daemon_set, 600),
    ("apps", "Deployment"): Awaiter(workloads.deployment, 600),
    ("apps", "StatefulSet"): Awaiter(workloads.stateful_set, 600),
    ("batch", "Job"): Awaiter(workloads.job, 600),
    ("networking.k8s.io", "Ingress"): Awaiter(services.ingress, 600),
}
"""By group and kind. Objects of other kinds are ready as soon as they exist."""


def find_awaiter(obj: Object) -> Awaiter | None:
    kind = kind_of(obj)
    return AWAITERS.get((kind.group, kind.kind))


def check(cluster: Cluster, obj: Object) -> Progress | None:
    """Return the readiness of a live object; None for kinds that are always ready."""
    awaiter = find_awaiter(obj)
    return awaiter.check(cluster, obj) if awaiter else None


def until_ready(cluster: Cluster, obj: Object, seconds: float | None, report: Report) -> Object:
    """Wait until an object is ready; return the live object.

    `seconds` overrides the kind's timeout. Raises NotInitialized on failure or timeout, Cancelled when
    the engine cancels.
    """
    awaiter = find_awaiter(obj)
    if awaiter is None:
        return obj
    limit = awaiter.seconds if seconds is None else seconds
    deadline = time.monotonic() + limit
    pause = FIRST_PAUSE_SECONDS
    while True:
        live = _get_live(cluster, obj)
        if live is None:
            raise NotInitialized(obj, [f"{describe(obj)} was deleted while waiting for it"])
        obj = live
        progress = _progress(cluster, awaiter, obj)
        if progress.ready:
            report("")
            return obj
        if progress.failed:
            raise NotInitialized(obj, progress.reasons)
        report(progress.reasons[0])
        if time.monotonic() + pause > deadline:
            raise NotInitialized(obj, [f"not ready after {limit:g} s", *progress.reasons])
        if cluster.cancelled.wait(pause):
            raise Cancelled(obj, ["cancelled while waiting until it is ready", *progress.reasons])
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)


def until_gone(cluster: Cluster, obj: Object, seconds: float | None, report: Report) -> None:
    """Wait until a deleted object is gone. Raises NotInitialized with the reasons."""
    limit = DELETION_SECONDS if seconds is None else seconds
    deadline = time.monotonic() + limit
    pause = FIRST_PAUSE_SECONDS
    woken = time.monotonic()
    uid = at(obj, ("metadata", "uid"))
    while True:
        live = _get_live(cluster, obj)
        if live is None or (uid and at(live, ("metadata", "uid")) != uid):
            report("")
            return
        holding = deletion_blockers(live)
        report(holding[0])
        if time.monotonic() - woken > WAKE_SECONDS:
            woken = time.monotonic()
            _wake(cluster, live)
        if time.monotonic() + pause > deadline:
            raise NotInitialized(live, [f"not gone after {limit:g} s", *holding])
        if cluster.cancelled.wait(pause):
            raise Cancelled(live, ["cancelled while waiting until it is gone", *holding])
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)


def _wake(cluster: Cluster, live: Object) -> None:
    """Change an annotation of a deleted object that its controller may have overlooked."""
    kind = kind_of(live)
    if (kind.group, kind.kind) not in OVERLOOKED:
        return
    # With the uid, an object that is gone by now is not created again.
    meta = {key: at(live, ("metadata", key)) for key in ("name", "uid")}
    meta["annotations"] = {WAKE: str(time.time_ns())}
    manifest = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": meta}
    with contextlib.suppress(ApiError, Unreachable):
        cluster.apply(manifest, "trainyard-wake", force=True)


def deletion_blockers(obj: Object) -> list[str]:
    """Return what blocks a deletion: finalizers, a namespace's contents."""
    found = []
    finalizers = at(obj, ("metadata", "finalizers"), []) or []
    if finalizers:
        found.append(f"waiting for its finalizers: {', '.join(finalizers)}")
    for kind in ("NamespaceContentRemaining", "NamespaceFinalizersRemaining"):
        remaining = condition(obj, kind)
        if remaining.get("status") == "True":
            found.append(explain(remaining))
    return found or ["waiting until it is gone"]


def _get_live(cluster: Cluster, obj: Object) -> Object | None:
    """Return the live object; None when it or its kind is gone; `obj` while the server restarts."""
    try:
        return cluster.find(obj)
    except UnknownKind:
        return None
    except ApiError as error:
        if error.code < 500:
            raise
    except Unreachable:
        pass
    return obj


def _progress(cluster: Cluster, awaiter: Awaiter, obj: Object) -> Progress:
    try:
        return awaiter.check(cluster, obj)
    except (ApiError, Unreachable) as error:
        return waiting(str(error))
