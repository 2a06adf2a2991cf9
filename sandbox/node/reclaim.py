"""Reclaim a node as the cloud and its interruption handler do, and restore it.

With notice: the node is cordoned and tainted, an event and a condition give the reason, its pods are
evicted (DisruptionTarget, SIGTERM); when all have ended or the notice is over, remaining processes are
killed and the Node is deleted. Without notice: the Node is deleted at once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from math import ceil
from typing import TypeVar

from infra.domain import naming
from sandbox import paths
from sandbox.node.api import (
    ApiError,
    ApiUnavailable,
    Client,
    Json,
    node_path,
    object_path,
    pod_path,
)
from sandbox.node.events import build_event
from sandbox.node.records import load_json, pod_folders
from sandbox.node.status import stamp
from sandbox.rbac import CLOUD
from sandbox.reporting import Report, SandboxError

TAINT_KEY = f"{naming.DOMAIN}/interruption"
TAINT_VALUE = "spot"
POLL_S = 0.25
STOP_TIMEOUT_S = 15.0
"""How long the agent may take to end the processes of a deleted node."""
API_TIMEOUT_S = 30.0
COMPONENT = "spot-interruption"

_SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
_LIFECYCLE_TAINTS = "node.kubernetes.io/"
"""Prefix of taints that the node lifecycle controller manages."""
_KUBELET_STATUS = ("conditions", "addresses", "nodeInfo", "daemonEndpoints", "images")

T = TypeVar("T")


def reclaim(
    node: str,
    notice_s: float,
    *,
    on_event: Report = lambda _: None,
    state: paths.State | None = None,
) -> None:
    """Reclaim `node` as a spot interruption does; `notice_s`: seconds of notice (EC2: 120).

    0 means no notice: SIGKILL to everything at once. The node is deleted when it is drained. Returns once
    no process of it runs. `restore` recreates it. Raises SandboxError for an unknown node.
    """
    at = state or paths.state()
    client = Client(at.kubeconfig_of(CLOUD))
    item = _get_node(client, node)
    _save(at, item)
    if notice_s > 0:
        _drain(client, node, notice_s, on_event)
    else:
        on_event(f"{node}: reclaimed without notice")
    _remove(client, node)
    on_event(f"{node}: deleted")
    _wait_until_stopped(at, node)


def restore(node: str, *, state: paths.State | None = None) -> list[str]:
    """Recreate a reclaimed node, or `all`; return the names of the recreated ones.

    A node keeps its field managers, so that server-side apply (Pulumi) finds its fields unchanged. One that exists
    again is left alone.
    """
    at = state or paths.state()
    folder = at.node / "reclaimed"
    names = sorted(path.stem for path in folder.glob("*.json")) if folder.is_dir() else []
    if node != "all":
        if node not in names:
            raise SandboxError(
                f"{node}: not reclaimed; reclaimed nodes: {', '.join(names) or 'none'}"
            )
        names = [node]
    back = []
    for name in names:
        manifest = load_json(folder / f"{name}.json")
        if manifest is not None and _recreate(Client(at.kubeconfig_of(CLOUD)), manifest):
            back.append(name)
        (folder / f"{name}.json").unlink(missing_ok=True)
    return back


def _get_node(client: Client, name: str) -> Json:
    try:
        return _retry_while_unavailable(lambda: client.get(node_path(name)))
    except ApiError as error:
        if not error.not_found:
            raise
        known = [item["metadata"]["name"] for item in client.get(node_path())["items"]]
        message = f"node {name!r} does not exist; nodes: {', '.join(sorted(known)) or 'none'}"
        raise SandboxError(message) from error


def _save(state: paths.State, item: Json) -> None:
    """Store the manifest durably, so that the node can be restored after any failure."""
    folder = state.node / "reclaimed"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{item['metadata']['name']}.json"
    part = path.with_suffix(".part")
    with open(part, "w") as file:
        json.dump(item, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _drain(client: Client, node: str, notice_s: float, report: Report) -> None:
    end = time.monotonic() + notice_s
    _send_notice(client, node, notice_s)
    report(f"{node}: interruption notice, {notice_s:g} s; cordoned and tainted")
    evicted: set[str] = set()
    while time.monotonic() < end:
        try:
            left = _pods(client, node)
            for pod in left:
                uid = pod["metadata"]["uid"]
                if uid not in evicted and _evict(client, pod, end - time.monotonic()):
                    evicted.add(uid)
                    report(f"{node}: evicting {_name(pod)}")
            if not left:
                report(
                    f"{node}: drained {end - time.monotonic():.0f} s before the end of the notice"
                )
                return
        except ApiUnavailable:
            pass  # the notice period runs on regardless
        time.sleep(min(POLL_S, max(0.0, end - time.monotonic())))
    left = _retry_while_unavailable(lambda: _pods(client, node))
    for pod in left:
        report(f"{node}: the notice is over; killing {_name(pod)}")


def _send_notice(client: Client, node: str, notice_s: float) -> None:
    """Cordon and taint the Node, set its condition and post an event, as an interruption handler does."""
    taint = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": "NoSchedule"}
    item = client.get(node_path(node))
    taints = [t for t in item["spec"].get("taints") or [] if t["key"] != TAINT_KEY]
    spec = {"unschedulable": True, "taints": [*taints, taint]}
    version = {"resourceVersion": item["metadata"]["resourceVersion"]}
    try:
        client.patch(node_path(node), {"metadata": version, "spec": spec}, "strategic")
    except ApiError as error:
        if not error.conflict:
            raise
        _send_notice(client, node, notice_s)
        return
    message = f"the instance will be reclaimed in {notice_s:g} s"
    now = stamp(time.time())
    condition = {"type": "SpotInterruption", "status": "True", "reason": "ReclaimNotice"}
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    status = {"conditions": [{**condition, "message": message, **times}]}
    client.patch(node_path(node, "status"), {"status": status}, "strategic")
    about = {"kind": "Node", "apiVersion": "v1", "name": node, "uid": item["metadata"]["uid"]}
    event = build_event(about, "SpotInterruption", message, True, node, COMPONENT)
    client.create(object_path("/api/v1", "default", "events"), event)


def _pods(client: Client, node: str) -> list[Json]:
    answer = client.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
    return [
        pod
        for pod in answer["items"]
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]


def _evict(client: Client, pod: Json, left_s: float) -> bool:
    """Evict the pod; its grace period is capped by the rest of the notice. Return whether accepted."""
    metadata, spec = pod["metadata"], pod["spec"]
    if metadata.get("deletionTimestamp"):
        return True
    wanted = spec.get("terminationGracePeriodSeconds")
    grace = min(30 if wanted is None else int(wanted), max(1, ceil(left_s)))
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "deleteOptions": {
            "gracePeriodSeconds": grace,
            "preconditions": {"uid": metadata["uid"]},
        },
    }
    try:
        client.create(pod_path(metadata["namespace"], metadata["name"], "eviction"), body)
    except ApiError as error:
        if error.status == 429:  # rejected by a disruption budget; retried until the end
            return False
        if not (error.not_found or error.conflict):
            raise
    return True


def _remove(client: Client, node: str) -> None:
    def delete() -> None:
        try:
            client.delete(node_path(node))
        except ApiError as error:
            if not error.not_found:
                raise

    _retry_while_unavailable(delete)


def _wait_until_stopped(state: paths.State, node: str) -> None:
    """Wait until the agent has ended all processes of the node; kill them after `STOP_TIMEOUT_S`."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while True:
        running = [
            attempt
            for place in pod_folders(state)
            if place.load().get("node") == node
            for attempt in place.all_attempts()
            if attempt.alive()
        ]
        if not running:
            return
        if time.monotonic() > deadline:
            for attempt in running:
                attempt.kill()
        time.sleep(POLL_S)


def _recreate(client: Client, manifest: Json) -> bool:
    name = manifest["metadata"]["name"]
    try:
        client.get(node_path(name))
        return False
    except ApiError as error:
        if not error.not_found:
            raise
    client.create(node_path(), without_server_fields(manifest))
    # The creation made this program the manager of all fields, too.
    owners = [one for one in manifest["metadata"]["managedFields"] if not one.get("subresource")]
    client.patch(node_path(name), {"metadata": {"managedFields": owners}})
    return True


def without_server_fields(node: Json) -> Json:
    """Return a Node without what the API server, the node lifecycle controller or a kubelet sets."""
    metadata = {k: v for k, v in node["metadata"].items() if k not in _SERVER_FIELDS}
    status = {k: v for k, v in (node.get("status") or {}).items() if k not in _KUBELET_STATUS}
    taints = (node.get("spec") or {}).get("taints") or []
    spec = {"taints": [t for t in taints if not t["key"].startswith(_LIFECYCLE_TAINTS)]}
    return node | {"metadata": metadata, "spec": (node.get("spec") or {}) | spec, "status": status}


def _retry_while_unavailable(call: Callable[[], T]) -> T:
    """Call `call`; retry while the API server is unavailable, up to `API_TIMEOUT_S`."""
    deadline = time.monotonic() + API_TIMEOUT_S
    while True:
        try:
            return call()
        except ApiUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def _name(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
