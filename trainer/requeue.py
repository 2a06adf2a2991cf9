"""Requeue runs that wait for a node that is gone: `python -m trainer.requeue`, in the namespace of MPI Operator.

Kueue requeues a gang that is incomplete for too long, and reads from the run's object whether it is. An MPIJob
reports itself as running until it ends or is suspended, so Kueue never sees that it has lost a node: the new pod
waits for the node that Kueue chose for it. This program looks for such pods and makes Kueue choose again, by
`spec.active` of the Workload: false evicts the gang, true queues it again. The time that counts for `maxHours`
goes on.

It needs no memory: an annotation marks the Workloads that it has deactivated, so that it activates no others.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

JOB_KINDS: Final = ("mpijob",)
"""Job kinds, as in the label of their pods, whose objects do not report a lost pod."""
MARK: Final = "trainyard.dev/requeued"
"""Annotation of Workloads that this program has deactivated and must activate again."""
LAUNCHER: Final = "trainyard.dev/launcher"
HOST: Final = "kubernetes.io/hostname"
GATE: Final = "kueue.x-k8s.io/topology"
"""Scheduling gate that Kueue removes when it pins a pod to its node."""
ENDED: Final = "TerminatedByKueue"
"""Condition of a pod that Kueue has ended because it waited for a node from which the gang was moved."""
WORKLOAD_OF: Final = "kueue.x-k8s.io/workload"
"""Annotation with which Kueue names the Workload of a pod."""
KUEUE_API: Final = "kueue.x-k8s.io/v1beta2"
"""These names are those of infra/domain/naming.py and infra/addons/mpi_operator.py, by a test."""

_WORKLOADS: Final = f"/apis/{KUEUE_API}/workloads"

POLL_S: Final = 5.0
GIVE_UP_S: Final = 300.0
"""Seconds without an answer after which the program ends; its pod starts again with new credentials."""
_TIMEOUT_S: Final = 30.0
_PAGE: Final = 500
"""Objects per answer."""
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Api:
    """The API server. The token is read again for each request, because the kubelet renews it."""

    server: str
    token: Path
    tls: ssl.SSLContext | None

    @classmethod
    def of_pod(cls) -> Api:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        return cls(
            server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
            token=_ACCOUNT / "token",
            tls=ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt")),
        )

    def items(self, path: str, **query: str) -> list[Json]:
        """List the objects of a path. Raises OSError."""
        found: list[Json] = []
        more: str | None = ""
        while more is not None:
            words = query | {"limit": str(_PAGE)} | ({"continue": more} if more else {})
            answer = self._send("GET", f"{path}?{urllib.parse.urlencode(words)}")
            found += answer.get("items") or []
            more = (answer.get("metadata") or {}).get("continue") or None
        return found

    def patch(self, path: str, change: Mapping[str, Any]) -> bool:
        """Merge-patch an object; return False if it does not exist any more. Raises OSError."""
        try:
            self._send("PATCH", path, change)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return False
        return True

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        token = self.token.read_text(encoding="ascii").strip()
        headers = {"Accept": "application/json", "Authorization": f"Bearer {token}"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.server}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self.tls) as answer:
            content: Json = json.load(answer)
        return content


def stranded(
    pods: Iterable[Json], nodes: Iterable[str], workloads: Iterable[Json]
) -> dict[tuple[str, str], str]:
    """Return the lost node by namespace and name of the Workload whose pod waits for it, or did. Pure.

    A pod that was created before the node was gone is pinned to it, until Kueue ends it; one that was created
    later keeps Kueue's gate as long as its Workload has an unhealthy node. A pod that ends still belongs to the
    attempt that lost the node.
    """
    known = set(nodes)
    unhealthy = {_key(one): _unhealthy_nodes(one) for one in workloads}
    found: dict[tuple[str, str], str] = {}
    for pod in pods:
        meta, ended = pod["metadata"], _was_ended(pod)
        workload = (meta.get("annotations") or {}).get(WORKLOAD_OF)
        if not workload or not (ended or _waits(pod)) or meta.get("deletionTimestamp"):
            continue
        key = (meta["namespace"], workload)
        if pinned := (pod["spec"].get("nodeSelector") or {}).get(HOST):
            gone = [pinned]
        else:
            gone = unhealthy.get(key, []) if _is_gated(pod) else []
        if lost := [node for node in gone if ended or node not in known]:
            found[key] = lost[-1]
    return found


def _key(item: Json) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _unhealthy_nodes(workload: Json) -> list[str]:
    return [one["name"] for one in (workload.get("status") or {}).get("unhealthyNodes") or []]


def _is_gated(pod: Json) -> bool:
    return any(gate.get("name") == GATE for gate in pod["spec"].get("schedulingGates") or [])


def _waits(pod: Json) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Pending" and not pod["spec"].get("nodeName")


def _was_ended(pod: Json) -> bool:
    """Whether Kueue has ended a pod that waited, and nothing creates it again.

    The launcher is a Job's: that creates another pod, and keeps the one that failed also while it is suspended.
    """
    status = pod.get("status") or {}
    kinds = {one.get("type") for one in status.get("conditions") or []}
    of_job = any(one.get("kind") == "Job" for one in pod["metadata"].get("ownerReferences") or [])
    return status.get("phase") == "Failed" and ENDED in kinds and not of_job


class Requeue:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._marked = True
        """Whether there may be marked Workloads: another process may have left some."""

    def look(self) -> None:
        """Deactivate Workloads with a lost node; activate those that have left their nodes. Raises OSError."""
        if self._marked:
            self._activate()
        kinds = f"{LAUNCHER} in ({','.join(JOB_KINDS)})"
        pods = self._api.items("/api/v1/pods", labelSelector=kinds)
        if not any(_waits(pod) or _was_ended(pod) for pod in pods):
            return
        nodes = [node["metadata"]["name"] for node in self._api.items("/api/v1/nodes")]
        gated = any(_is_gated(pod) for pod in pods)
        workloads = self._api.items(_WORKLOADS) if gated else []
        for (namespace, name), node in stranded(pods, nodes, workloads).items():
            self._marked = True
            if self._set(namespace, name, active=False):
                _report(f"{namespace}/{name}: its node {node} is gone; evicting it")

    def _activate(self) -> None:
        """Queue the marked Workloads again that hold no nodes any more."""
        workloads = self._api.items(_WORKLOADS)
        marked = [one for one in workloads if MARK in (one["metadata"].get("annotations") or {})]
        self._marked = bool(marked)
        for workload in marked:
            namespace, name = _key(workload)
            holds_nodes = (workload.get("status") or {}).get("admission")
            if not holds_nodes and self._set(namespace, name, active=True):
                _report(f"{namespace}/{name}: queued again")

    def _set(self, namespace: str, name: str, *, active: bool) -> bool:
        """Change spec.active and the mark; return False if the Workload does not exist any more."""
        mark = {"annotations": {MARK: None if active else "true"}}
        path = f"/apis/{KUEUE_API}/namespaces/{namespace}/workloads/{name}"
        return self._api.patch(path, {"metadata": mark, "spec": {"active": active}})


def run(requeue: Requeue, *, give_up_s: float = GIVE_UP_S, poll_s: float = POLL_S) -> int:
    """Look for ever; return 1 once the API server has not answered for `give_up_s`."""
    answered = time.monotonic()
    while True:
        try:
            requeue.look()
            answered = time.monotonic()
        except (OSError, ValueError) as error:
            _report(f"{type(error).__name__}: {error}")
            if time.monotonic() - answered > give_up_s:
                return 1
        time.sleep(poll_s)


def _report(text: str) -> None:
    print(f"requeue: {text}", flush=True)


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    return run(Requeue(Api.of_pod()))


if __name__ == "__main__":
    sys.exit(main())
