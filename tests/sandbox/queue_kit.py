"""A small fleet of simulated nodes with teams that queue for them on the real Kueue."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from infra.config import arguments, parse, platform_record
from infra.domain import naming
from infra.queueing import kueue, priorities
from infra.sites.simulated import node_pools
from infra.tenancy import access, team
from sandbox.node.api import ApiError, Client, object_path
from sandbox.service_config import KEEPS_RUNNING
from tests.golden.example_runs import PREPARED, run
from tests.sandbox.conftest import Cluster, as_list
from tests.sandbox.node_kit import until, wake_topologies
from training.launchers import LAUNCHERS
from training.spec import Resources

Json = dict[str, Any]

HOLD = "trainyard.dev/test-hold"
"""A scheduling gate: KWOK ends pods of Jobs as soon as they run, so long runs must never start."""

_JOBS = "/apis/batch/v1"
_WORKLOADS = object_path(f"/apis/{naming.KUEUE_API}", None, "workloads")
_PREEMPTING = "Pending the preemption"
"""Message of Kueue on a run for which it is preempting others."""

_GONE_S = 180.0
"""The garbage collector of a new cluster first lists all objects, which took 20 s."""

_GPUS = 8
"""Of a p4d node."""


def pool(name: str, nodes: int, capacity: str = "spot", **options: Any) -> Json:
    """So many KWOK nodes with eight GPUs each."""
    return {
        "name": name,
        "capacity": capacity,
        "instanceTypes": ["p4d.24xlarge"],
        "min": nodes,
        "max": nodes,
        "zone": "queue-zone",
        "nodes": "kwok",
        **options,
    }


def team_of(name: str, tier: str = "research", **options: Any) -> Json:
    """A team whose namespace bounds nothing that these tests are about."""
    quota = {"cpu": "9000", "memory": "90Ti", "gpus": _GPUS}
    return {"name": name, "tier": tier, "quota": quota, **options}


@dataclass
class Fleet:
    """The objects of a stack with these pools and teams, under unique names, and the runs on it."""

    cluster: Cluster
    name: str
    """Of the cohort; also the prefix of cluster-wide objects that stacks have under usual names."""
    pools: Sequence[Json]
    teams: Sequence[Json]
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(self.cluster.kubeconfig)
        self.config = parse(self.values())
        self.platform = platform_record.platform(self.config, self.name)
        self.namespaces = {naming.namespace(t.name) for t in self.config.teams}

    def values(self) -> Json:
        return {
            "cluster": {"provider": "existing", "name": self.name},
            "taintKey": "dedicated",
            "cohort": self.name,
            "nodePools": list(self.pools),
            "storage": {"checkpoints": "1Gi", "datasets": "1Gi"},
            "operators": {"kueue": {"provided": True}, "jobset": {"provided": True}},
            "teams": list(self.teams),
        }

    def own(self, manifest: Json) -> Json:
        """Return the manifest with unique names for cluster-wide objects."""
        text = json.dumps(manifest)
        for usual in (naming.TOPOLOGY, *priorities.PRIORITIES):
            text = text.replace(f'"{usual}"', f'"{self.name}-{usual}"')
        renamed: Json = json.loads(text)
        return renamed

    def objects(self) -> list[Json]:
        queues = arguments.queues(self.config)
        names = [t.name for t in self.config.teams]
        return [
            self.own(manifest)
            for manifest in (
                *self.node_objects(),
                *(priorities.priority_class(name) for name in priorities.PRIORITIES),
                *(kueue.workload_priority_class(name) for name in priorities.PRIORITIES),
                kueue.topology(),
                *(kueue.flavor(p) for p in queues.pools),
                kueue.cohort(queues.cohort, queues.pools, queues.teams),
                *(kueue.cluster_queue(t, queues.cohort, queues.pools) for t in queues.teams),
                *(team.namespace(name) for name in names),
                *(access.service_account(name) for name in names),
                *(team.local_queue(name) for name in names),
            )
        ]

    def node_objects(self) -> list[Json]:
        """What makes the fleet's nodes: here the nodes themselves."""
        return [node_pools.node(p, i) for p in self.config.pools for i in range(p.max)]

    def await_nodes(self) -> None:
        pools = ",".join(p.name for p in self.config.pools)
        nodes = ("nodes", "-l", f"{naming.POOL} in ({pools})")
        self.cluster.kubectl("wait", *nodes, "--for=condition=Ready", "--timeout=180s")

    @contextmanager
    def deployed(self) -> Iterator[Fleet]:
        objects = self.objects()
        until(lambda: not self._ending(objects), "an earlier fleet is gone", _GONE_S, every_s=1.0)
        self.cluster.apply(*objects)
        try:
            queues = [f"clusterqueue/{naming.cluster_queue(t.name)}" for t in self.config.teams]
            self.cluster.kubectl("wait", *queues, "--for=condition=Active", "--timeout=180s")
            self.await_nodes()
            yield self
        finally:
            self.stop_all()
            # Namespaces are slow to delete and disturb only a fleet of the same teams, which waits for them.
            options = ("--ignore-not-found", "--wait=false", "-f", "-")
            self.cluster.kubectl("delete", *options, stdin=as_list(objects[::-1]))
            until(lambda: not self._left(objects), "no queue is left", _GONE_S, every_s=1.0)

    def _ending(self, objects: Sequence[Json]) -> list[str]:
        named = [o["metadata"]["name"] for o in objects if o["kind"] == "Namespace"]
        found = [
            item["metadata"]
            for item in self.client.get(object_path("/api/v1", None, "namespaces"))["items"]
        ]
        return [m["name"] for m in found if m["name"] in named and "deletionTimestamp" in m]

    def _left(self, objects: Sequence[Json]) -> list[str]:
        """Kueue's cluster-wide objects that are still there: each waits for those that name it."""
        wake_topologies(self.cluster)
        found = []
        for plural in ("clusterqueues", "cohorts", "resourceflavors", "topologies"):
            path = object_path(f"/apis/{naming.KUEUE_API}", None, plural)
            found += [item["metadata"]["name"] for item in self.client.get(path)["items"]]
        return [o["metadata"]["name"] for o in objects if o["metadata"]["name"] in found]

    def start(
        self,
        team_name: str,
        name: str,
        pools: Sequence[str],
        *,
        nodes: int = 1,
        priority: str | None = None,
        hold: bool = True,
        keeps_running: bool = False,
        max_hours: float | None = None,
        deadline: str = "",
        gpu_model: str = "",
    ) -> str:
        """Submits a run of whole nodes on these pools; its id. `hold`: it never starts, and never ends.

        No `pools`: those that its file allows.
        `keeps_running`: without `hold`, its pods run until they are deleted; else they end at once.
        """
        tier = self.platform.teams[team_name].tier
        spec = run(
            dataset=PREPARED,
            name=name,
            team=team_name,
            tier=tier,
            job_kind="indexed-job",
            nodes=nodes,
            resources=Resources(cpu="8", memory="16Gi", shm="1Gi"),
            priority=priority,
            max_hours=max_hours,
            deadline=deadline,
            gpu_model=gpu_model,
        )
        job = self.own(copy.deepcopy(LAUNCHERS["indexed-job"].render(spec, self.platform)[-1]))
        body = job["spec"]["template"]["spec"]
        [term] = body["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        for wanted in term["matchExpressions"]:
            if pools and wanted["key"] == naming.POOL:
                wanted["values"] = list(pools)
        # The team's volumes are none of these tests' business.
        body["volumes"] = []
        body["containers"][0]["volumeMounts"] = []
        if keeps_running:
            about = job["spec"]["template"].setdefault("metadata", {})
            about.setdefault("annotations", {})[KEEPS_RUNNING] = "true"
        if hold:
            body["schedulingGates"] = [{"name": HOLD}]
        self.client.create(object_path(_JOBS, naming.namespace(team_name), "jobs"), job)
        return spec.run_id

    def stop(self, team_name: str, *run_ids: str) -> None:
        for run_id in run_ids:
            path = object_path(_JOBS, naming.namespace(team_name), "jobs", run_id)
            self.client.delete(path, {"propagationPolicy": "Background"})

    def stop_all(self) -> None:
        for namespace in sorted(self.namespaces):
            for job in self.client.get(object_path(_JOBS, namespace, "jobs"))["items"]:
                path = object_path(_JOBS, namespace, "jobs", job["metadata"]["name"])
                try:
                    self.client.delete(path, {"propagationPolicy": "Background"})
                except ApiError as error:
                    if not error.not_found:
                        raise
        until(lambda: not self.workloads(), "all runs are gone", _GONE_S)

    def workloads(self) -> dict[str, Json]:
        """Kueue's view of all runs, as of one moment, by run id."""
        return {
            workload["metadata"]["ownerReferences"][0]["name"]: workload
            for workload in self.client.get(_WORKLOADS)["items"]
            if workload["metadata"]["namespace"] in self.namespaces
        }

    def admitted(self) -> set[str]:
        """Runs that hold quota now."""
        return {run_id for run_id, workload in self.workloads().items() if holds_quota(workload)}

    def waiting(self) -> set[str]:
        """Return runs that Kueue reports as not fitting and for which it preempts no others."""
        found = set()
        for run_id, workload in self.workloads().items():
            reserved = condition(workload, "QuotaReserved")
            if reserved and not holds_quota(workload) and _PREEMPTING not in reserved["message"]:
                found.add(run_id)
        return found

    def pods(self, run_id: str) -> list[Json]:
        found = []
        for namespace in sorted(self.namespaces):
            query = {"labelSelector": f"{naming.RUN_ID}={run_id}"}
            found += self.client.get(object_path("/api/v1", namespace, "pods"), **query)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def racks(self, run_id: str, nodes: int) -> set[int]:
        """Wait until Kueue has chosen so many nodes for a run; return their racks, of four nodes each."""

        def placed() -> list[str]:
            selectors = [pod["spec"].get("nodeSelector", {}) for pod in self.pods(run_id)]
            return sorted(s[naming.HOSTNAME] for s in selectors if naming.HOSTNAME in s)

        hosts = until(
            lambda: found if len(found := placed()) == nodes else None, "the nodes are chosen"
        )
        return {int(host.rpartition("-")[2]) // 4 for host in hosts}

    def await_split(self, admitted: set[str], waiting: set[str]) -> None:
        """Wait until exactly `admitted` hold quota and Kueue reports `waiting` as pending."""

        def settled() -> bool:
            return self.admitted() == admitted and self.waiting() >= waiting

        try:
            until(settled, "the queue has settled")
        except AssertionError as error:
            raise AssertionError(
                f"{error}: wanted {sorted(admitted)} to run and {sorted(waiting)} to wait; "
                f"{sorted(self.admitted())} run, {sorted(self.waiting())} wait"
            ) from None


def condition(workload: Json, kind: str) -> Json | None:
    found = workload.get("status", {}).get("conditions", [])
    return next((c for c in found if c["type"] == kind), None)


def holds_quota(workload: Json) -> bool:
    finished = condition(workload, "Finished")
    ended = finished is not None and finished["status"] == "True"
    return "admission" in workload.get("status", {}) and not ended


def held(workload: Json) -> tuple[str, int]:
    """The pool that an admitted run is in, and its nodes there."""
    [assigned] = workload["status"]["admission"]["podSetAssignments"]
    gpus = int(assigned["resourceUsage"][naming.GPU])
    assert gpus == _GPUS * assigned["count"]
    return assigned["flavors"][naming.GPU], assigned["count"]


def has_topology(workload: Json) -> bool:
    [assigned] = workload["status"]["admission"]["podSetAssignments"]
    return "topologyAssignment" in assigned


def evicted_because(workload: Json) -> str:
    for kind in ("Preempted", "Evicted"):
        found = condition(workload, kind)
        if found and found["status"] == "True":
            return str(found["reason"])
    return ""
