"""A cluster with runs of two teams that enforces the project's RBAC, for the run page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from infra.domain import naming
from infra.tenancy import shared_view
from infra.tenancy.access import ROLE_RULES
from ops.cluster import ForbiddenError, Kind
from ops.objects import Json
from tests.unit.ops.run_fixtures import (
    at,
    cluster_queue,
    condition,
    flavor,
    local_queue,
    node,
    pod,
    pod_spec,
    run,
    waits,
    workload,
)
from tests.unit.ops.test_ops_commands import FakeCluster

TEAMS = ("research", "production")
KEY = "the-key"


def resources_of(rules: list[dict[str, Any]], verb: str) -> set[str]:
    """Resources that rules allow a verb on."""
    return {name for rule in rules if verb in rule["verbs"] for name in rule["resources"]}


class RoleCluster(FakeCluster):
    """Answers as the API server does to a member of a team with a role."""

    def __init__(self, team: str, role: str, items: Mapping[str, list[Json]]) -> None:
        super().__init__(**items)
        self._namespace = naming.namespace(team)
        self._mine = resources_of(ROLE_RULES[role], "list")
        self._logs = "pods/log" in resources_of(ROLE_RULES[role], "get")
        names = [shared_view.FLEET]
        self._everywhere = {
            r for name in names for r in resources_of(shared_view.RULES[name], "list")
        }

    def _check(self, plural: str, namespace: str | None) -> None:
        mine = namespace == self._namespace and plural in self._mine
        if not mine and plural not in self._everywhere:
            raise ForbiddenError(f"{plural} is forbidden in {namespace or 'the cluster'}")

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        self._check(kind.plural, namespace)
        return super().items(kind, namespace, selector)

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        self._check(kind.plural, namespace)
        return super().get(kind, name, namespace)

    def text(self, path: str, query: Any, timeout_s: float = 30.0) -> str | None:
        found = re.search("/namespaces/([^/]+)/", path)
        namespace = found[1] if found else ""
        if not path.endswith("/log") or namespace != self._namespace or not self._logs:
            raise ForbiddenError(f"{path} is forbidden")
        return super().text(path, query, timeout_s)


def a_run(team: str, name: str, version: int = 1, *, age_s: float = 300, **changes: Any) -> Json:
    """A run of a team."""
    found = run(**changes)
    run_id = f"{name}-v{version}-aaaaaaaa"
    labels = {
        naming.RUN: name,
        naming.RUN_ID: run_id,
        naming.RUN_VERSION: str(version),
        naming.TEAM: team,
        naming.QUEUE_NAME: team,
    }
    found["metadata"] = found["metadata"] | {
        "name": run_id,
        "namespace": naming.namespace(team),
        "uid": run_id,
        "labels": found["metadata"]["labels"] | labels,
        "creationTimestamp": at(age_s),
    }
    return found


def workload_of(one: Json, *conditions: Json, **more: Any) -> Json:
    """The Workload of such a run."""
    meta = one["metadata"]
    return workload(
        *conditions, run_id=meta["name"], uid=meta["uid"], namespace=meta["namespace"], **more
    )


def pod_of(one: Json, rank: int, on: str) -> Json:
    """A running pod of a run."""
    meta = one["metadata"]
    found = pod(f"{meta['name']}-worker-0-{rank}-x")
    mine = {naming.RUN_ID: meta["name"], naming.TEAM: meta["labels"][naming.TEAM]}
    found["metadata"] = found["metadata"] | {
        "namespace": meta["namespace"],
        "labels": found["metadata"]["labels"] | mine | {naming.JOB_INDEX: str(rank)},
    }
    found["spec"] = pod_spec() | {"nodeName": on}
    started = {"name": "trainer", "state": {"running": {}}, "restartCount": 0}
    found["status"]["containerStatuses"] = [started]
    return found


def finished_pod_of(one: Json, started_s: float, ended_s: float) -> Json:
    """The first pod of a finished run; times in seconds ago."""
    found = pod_of(one, 0, "spot-0")
    done = {"exitCode": 0, "startedAt": at(started_s), "finishedAt": at(ended_s)}
    status = {"name": "trainer", "state": {"terminated": done}, "restartCount": 0}
    found["status"] = {"phase": "Succeeded", "containerStatuses": [status]}
    return found


def config_map(one: Json, rate: str) -> Json:
    """What a run records."""
    record = {
        "run_id": one["metadata"]["name"],
        "world_size": 16,
        "processes_per_node": 8,
        "nodes": 2,
        "git_commit": f"commit-of-{one['metadata']['name']}",
        "launched_by": "ada",
    }
    return {
        "kind": "ConfigMap",
        "metadata": {"name": one["metadata"]["name"], "namespace": one["metadata"]["namespace"]},
        "data": {
            "run.json": json.dumps(record),
            "trainer.yaml": f"optimizer: {{learning_rate: {rate}}}\n",
        },
    }


def spot_node(name: str, *taints: Json, **spec: Any) -> Json:
    """A priced spot node."""
    found = node(name, "spot", *taints, **spec)
    found["metadata"]["uid"] = f"uid-{name}"
    found["metadata"]["creationTimestamp"] = at(7200)
    found["metadata"]["labels"] |= {
        naming.INSTANCE_TYPE: "p5.48xlarge",
        naming.CAPACITY: "spot",
        naming.ZONE: "us-east-1a",
    }
    return found


def world() -> dict[str, list[Json]]:
    """Per team: a running run of two versions, and one that waits; four spot nodes."""
    runs, workloads, pods, maps = [], [], [], []
    for index, team in enumerate(TEAMS):
        old = a_run(
            team, f"{team}-model", 1, age_s=9000, status={"conditions": [condition("Completed")]}
        )
        live = a_run(team, f"{team}-model", 2, age_s=3000)
        waiting = a_run(team, f"{team}-next", 1, age_s=200)
        runs += [live, waiting, old]
        admitted = [condition("QuotaReserved"), condition("Admitted")]
        workloads += [
            workload_of(live, *admitted, flavor="spot"),
            workload_of(waiting, waits(f"insufficient quota for {team}")),
        ]
        pods += [pod_of(live, rank, f"spot-{2 * index + rank}") for rank in (0, 1)]
        maps += [config_map(live, "0.002"), config_map(old, "0.001"), config_map(waiting, "0.003")]
    return {
        "jobsets": runs,
        "workloads": workloads,
        "pods": pods,
        "configmaps": maps,
        "nodes": [spot_node(f"spot-{n}") for n in range(4)],
        "clusterqueues": [cluster_queue(team, used={"spot": 16}, spot=16) for team in TEAMS],
        "localqueues": [local_queue()],
        "resourceflavors": [flavor("spot")],
        "events": [],
    }


LOG = (
    "2026-11-21T11:58:00Z step 100/1000  loss 5.500  12,000 tokens/s  MFU 41.0 %  90 s left\n"
    "2026-11-21T11:58:10Z step 120/1000  loss 5.402  12,500 tokens/s  MFU 41.5 %  88 s left\n"
)
