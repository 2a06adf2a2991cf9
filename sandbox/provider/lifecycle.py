"""Create, update and delete one object, and wait for the result."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sandbox.provider import awaiters
from sandbox.provider.cluster import Cluster
from sandbox.provider.errors import (
    ApiError,
    NotInitialized,
    ProviderError,
    UnknownKind,
    Unreachable,
)
from sandbox.provider.field_managers import applied_by_pulumi, keep_ignored
from sandbox.provider.objects import (
    DELETION_PROPAGATION,
    PATCH_FORCE,
    SKIP_AWAIT,
    TIMEOUT_SECONDS,
    Object,
    annotation,
    at,
    describe,
    is_annotated,
    kind_of,
    metadata,
)
from sandbox.provider.properties import has_unknown

ARRIVAL_SECONDS = 10.0
"""How long to wait for a missing kind, namespace or webhook."""
QUOTA_SECONDS = 120.0
"""How long to repeat a creation that a quota could not count: of many at once, each may lose several times."""

T = TypeVar("T")

_PROPAGATIONS = {"background": "Background", "foreground": "Foreground", "orphan": "Orphan"}


@dataclass(frozen=True)
class Call:
    """Context of one call of the engine.

    seconds: the resource's custom timeout, 0 for none. patch: a Patch resource, which owns some fields.
    """

    report: awaiters.Report
    warn: awaiters.Report
    seconds: float = 0.0
    patch: bool = False


def plan_creation(cluster: Cluster, manifest: Object, manager: str, call: Call) -> Object | None:
    """Return the planned object; None if only the update itself can determine it.

    That is the case for unknown values, missing kinds and namespaces, and where a webhook or missing
    permissions prevent a dry run. An existing object of the name is ignored: it may be deleted first.
    """
    if call.patch or has_unknown(manifest) or not cluster.serves(kind_of(manifest)):
        return None
    try:
        body = _body(cluster, manifest)
        planned = cluster.apply(body, manager, force=True, dry_run=True, warn=call.warn)
    except ApiError as error:
        if _only_dry_run_fails(error) or error.not_found or error.immutable or error.conflict:
            return None
        raise _describe_rejection(manifest, error) from error
    except (Unreachable, UnknownKind):
        return None
    planned.pop("status", None)
    return planned


def plan_update(
    cluster: Cluster, manifest: Object, manager: str, ignored: Sequence[str], call: Call
) -> Object | None:
    """Return the planned update; None if only the update itself can determine it."""
    if has_unknown(manifest) or not cluster.serves(kind_of(manifest)):
        return None
    try:
        return _changed(cluster, manifest, manager, ignored, call, dry_run=True)
    except ApiError as error:
        if _only_dry_run_fails(error):
            return None
        raise _describe_rejection(manifest, error) from error


def create(cluster: Cluster, manifest: Object, manager: str, call: Call) -> tuple[Object, str]:
    """Create an object; return it and its field manager.

    An existing object is an error or, with `upsert`, adopted under the field manager of an interrupted
    Pulumi update, so that no fields of that update remain. Raises ProviderError.
    """
    body = _body(cluster, manifest)
    existing = _retry_until_served(cluster, lambda: cluster.find(body), call)
    if existing is not None and at(existing, ("metadata", "deletionTimestamp")):
        # An object of this name is still being deleted.
        _wait_gone(cluster, existing, manifest, call)
        existing = None
    if existing is not None and not call.patch:
        if not cluster.settings.upsert:
            raise ProviderError(
                f"{describe(body)} already exists, but is not in this stack's state; "
                "import it, delete it, or adopt it with PULUMI_K8S_UPSERT_EXISTING_OBJECTS=true"
            )
        manager = applied_by_pulumi(existing) or manager
    if existing is None and call.patch:
        raise ProviderError(f"{describe(body)} does not exist; a Patch resource cannot create it")
    force = _force(cluster, manifest)
    try:
        live = _retry_until_served(
            cluster, lambda: cluster.apply(body, manager, force=force, warn=call.warn), call
        )
    except ApiError as error:
        raise _describe_rejection(body, error) from error
    return live, manager


def update(
    cluster: Cluster, manifest: Object, manager: str, ignored: Sequence[str], call: Call
) -> Object:
    """Apply new inputs to an object; one that was deleted meanwhile is created again."""
    try:
        return _retry_until_served(
            cluster,
            lambda: _changed(cluster, manifest, manager, ignored, call, dry_run=False),
            call,
        )
    except ApiError as error:
        raise _describe_rejection(manifest, error) from error


def update_status(cluster: Cluster, manifest: Object, manager: str) -> Object:
    """Apply the `status` of a manifest, which an update of the object does not change.

    Inputs have a status where the program acts as the controller: simulated nodes and their capacity.
    """
    body = _body(cluster, manifest)
    try:
        return cluster.apply(body, manager, force=True, subresource="status")
    except ApiError as error:
        raise _describe_rejection(body, error) from error


def wait_ready(cluster: Cluster, manifest: Object, live: Object, call: Call) -> Object:
    """Wait until a written object is ready, unless it is annotated otherwise; return the live object.

    Raises NotInitialized when it does not get ready.
    """
    if call.patch or is_annotated(manifest, SKIP_AWAIT):
        return live
    return awaiters.until_ready(cluster, live, _seconds(manifest, call), call.report)


def delete(cluster: Cluster, inputs: Object, live: Object, manager: str, call: Call) -> None:
    """Delete an object and its dependents, and wait for the end; a missing object is not an error.

    A Patch resource only gives up its fields, as does an object that cannot be deleted (the `default`
    namespace).
    """
    try:
        if call.patch:
            _relinquish(cluster, live, manager)
            return
        policy = (annotation(inputs, DELETION_PROPAGATION) or "foreground").lower()
        cluster.delete(live, _PROPAGATIONS.get(policy, "Foreground"))
    except UnknownKind:
        return
    except ApiError as error:
        if error.not_found:
            return
        if error.forbidden and "forbidden: this namespace may not be deleted" in error.message:
            _relinquish(cluster, live, manager)
            return
        raise ProviderError(f"{describe(live)}: cannot be deleted: {error}") from error
    if not is_annotated(inputs, SKIP_AWAIT):
        _wait_gone(cluster, live, inputs, call)


def unready(cluster: Cluster, inputs: Object, live: Object) -> list[str]:
    """Return why a live object is not ready; empty if it is ready or annotated with skipAwait."""
    if is_annotated(inputs, SKIP_AWAIT):
        return []
    progress = awaiters.check(cluster, live)
    return [] if progress is None or progress.ready else list(progress.reasons)


def _changed(
    cluster: Cluster,
    manifest: Object,
    manager: str,
    ignored: Sequence[str],
    call: Call,
    *,
    dry_run: bool,
) -> Object:
    body = _body(cluster, manifest)
    live = cluster.find(body)
    if live is None and call.patch:
        raise ProviderError(f"{describe(body)} no longer exists; run pulumi refresh")
    if live is not None and body.get("kind") == "CustomResourceDefinition" and not call.patch:
        # Server-side apply cannot remove versions or schema parts that others own.
        metadata(body)["resourceVersion"] = at(live, ("metadata", "resourceVersion"))
        cluster.discovery.forget(str(at(body, ("spec", "group"), "")))
        return cluster.replace(body, manager, dry_run=dry_run)
    body = keep_ignored(body, live or {}, manager, ignored)
    force = _force(cluster, manifest)
    return cluster.apply(body, manager, force=force, dry_run=dry_run, warn=call.warn)


def _only_dry_run_fails(error: ApiError) -> bool:
    """Whether only the dry run failed: the request itself may succeed."""
    return error.forbidden or error.no_dry_run


def _body(cluster: Cluster, manifest: Object) -> Object:
    """Return the manifest to send; a cluster-scoped object loses the namespace that it got while its
    kind was unknown."""
    body = copy.deepcopy(manifest)
    kind = kind_of(body)
    if cluster.serves(kind) and not cluster.resource(kind).namespaced:
        metadata(body).pop("namespace", None)
    return body


def _wait_gone(cluster: Cluster, live: Object, inputs: Object, call: Call) -> None:
    try:
        awaiters.until_gone(cluster, live, _seconds(inputs, call), call.report)
    except NotInitialized as error:
        raise ProviderError(f"{describe(live)}: {error}") from error


def _retry_until_served(cluster: Cluster, call: Callable[[], T], context: Call) -> T:
    """Retry a call while its kind, its namespace or a webhook is missing, or its quota is busy."""
    begun = time.monotonic()
    pause = 0.1
    while True:
        try:
            return call()
        except (UnknownKind, ApiError) as error:
            busy = isinstance(error, ApiError) and error.quota_busy
            passes = isinstance(error, UnknownKind) or error.not_found or error.webhook_down
            if not (busy or passes):
                raise
            limit = begun + (QUOTA_SECONDS if busy else ARRIVAL_SECONDS)
            if time.monotonic() + pause > limit or cluster.cancelled.wait(pause):
                raise
            context.report(str(error))
        pause = min(pause * 2, 1.0)


def _relinquish(cluster: Cluster, live: Object, manager: str) -> None:
    """Give up every field of a manager by applying an object without fields."""
    if cluster.find(live) is None:
        return
    meta = {key: metadata(live)[key] for key in ("name", "namespace") if key in metadata(live)}
    empty = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": meta}
    try:
        cluster.apply(empty, manager, force=False)
    except ApiError as error:
        if error.not_found:
            return
        raise ProviderError(
            f"{describe(live)}: the fields of this Patch resource cannot be released: {error}; "
            "set retainOnDelete to leave them"
        ) from error


def _force(cluster: Cluster, manifest: Object) -> bool:
    named = annotation(manifest, PATCH_FORCE)
    return named == "true" if named is not None else cluster.settings.patch_force


def _seconds(manifest: Object, call: Call) -> float | None:
    """Return a resource's custom timeout, else that of its annotation, else None."""
    if call.seconds:
        return call.seconds
    named = annotation(manifest, TIMEOUT_SECONDS)
    try:
        return float(named) if named else None
    except ValueError:
        raise ProviderError(
            f"metadata.annotations[{TIMEOUT_SECONDS}]: got {named!r}; must be a number of seconds"
        ) from None


def _describe_rejection(manifest: Object, error: ApiError) -> ProviderError:
    """Return the API server's rejection as one line, with a remedy where one is known."""
    text = f"{describe(manifest)}: {error}"
    if error.conflict and "conflict" in error.message:
        text += (
            "; remove these fields, or take them over with PULUMI_K8S_ENABLE_PATCH_FORCE=true "
            f'or the annotation {PATCH_FORCE}: "true"'
        )
    elif error.immutable:
        text += "; replace the object: pulumi up --replace URN, or give it another name"
    elif error.namespace_missing:
        text += "; create the namespace first (depends_on)"
    return ProviderError(text)
