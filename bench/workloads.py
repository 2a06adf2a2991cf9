"""Gangs without their pods: the Workloads that Kueue would make of them, and an end for each once it is admitted.

This is how Kueue's own scheduler benchmark loads it: what is measured is admission, and not how many
pods a small machine can take through their lives.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from bench.api import WRITERS, Api, Json
from infra.domain import naming

KUEUE_USER: Final = "system:serviceaccount:kueue-system:kueue-controller-manager"
"""The only user that the admission policies allow to write Workloads."""
KUEUE_GROUP: Final = "system:masters"
"""Group of the sandbox's Kueue."""


def render_workload(made: Json, priorities: dict[str, int]) -> Json:
    """The Workload of a Job or JobSet; `priorities`: values of the classes, by name."""
    metadata, labels = made["metadata"], made["metadata"]["labels"]
    replicated = made["spec"].get("replicatedJobs")
    job = replicated[0]["template"]["spec"] if replicated else made["spec"]
    pod_set: Json = {
        "name": replicated[0]["name"] if replicated else "main",
        "count": job.get("parallelism") or 1,
        "template": {"metadata": {}, "spec": job["template"]["spec"]},
    }
    if topology := _topology(job["template"]["metadata"].get("annotations") or {}):
        pod_set["topologyRequest"] = topology
    spec: Json = {"queueName": labels[naming.QUEUE_NAME], "podSets": [pod_set], "active": True}
    if name := labels.get(naming.WORKLOAD_PRIORITY):
        group, kind = naming.KUEUE_API.partition("/")[0], "WorkloadPriorityClass"
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
        spec["priority"] = priorities[name]
    return {
        "apiVersion": naming.KUEUE_API,
        "kind": "Workload",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": spec,
    }


def _topology(annotations: dict[str, str]) -> dict[str, str]:
    keys = {"preferred": naming.PREFERRED_TOPOLOGY, "required": naming.REQUIRED_TOPOLOGY}
    return {field: annotations[key] for field, key in keys.items() if key in annotations}


class WorkloadFinisher:
    """Finishes each Workload on its admission event, from separate threads."""

    def __init__(self, api: Api, workloads: str) -> None:
        """`workloads`: the path under which Workloads are in the version that is watched."""
        self._api = api
        self._path = workloads.removesuffix("/workloads")
        self._threads = ThreadPoolExecutor(WRITERS)
        self._seen: set[str] = set()

    def on_workload(self, item: Json) -> None:
        """An event's Workload."""
        conditions = (item.get("status") or {}).get("conditions") or []
        true = {c["type"] for c in conditions if c["status"] == "True"}
        uid = item["metadata"]["uid"]
        if "Admitted" in true and uid not in self._seen:
            self._seen.add(uid)
            self._threads.submit(self._finish, item["metadata"], conditions)

    def close(self) -> None:
        """Write no more."""
        self._threads.shutdown(cancel_futures=True)

    def _finish(self, metadata: Json, conditions: list[Any]) -> None:
        done = {
            "type": "Finished",
            "status": "True",
            "reason": "Succeeded",
            "message": "it has no pods that could take longer",
            "lastTransitionTime": conditions[-1]["lastTransitionTime"],
        }
        place = f"namespaces/{metadata['namespace']}/workloads/{metadata['name']}/status"
        self._api.merge(f"{self._path}/{place}", {"status": {"conditions": [*conditions, done]}})
