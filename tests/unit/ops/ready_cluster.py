"""A cluster in memory for readiness checks; it stores objects and acts as the Job controller."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infra.domain import naming
from ops import objects
from ops.cluster import ConflictError, ForbiddenError, Kind
from ops.objects import Json
from ops.ready import jobs, stack_facts
from ops.ready.jobs import Jobs, Poller, Session

RunJob = Callable[["LiveFake", Json], None]
Key = tuple[str, str, str]


class LiveFake:
    """Implements ops.cluster.Cluster. `run_job` finishes a Job on its creation."""

    def __init__(
        self, *items: Json, run_job: RunJob | None = None, forbidden: Sequence[str] = ()
    ) -> None:
        self.kept: dict[Key, Json] = {}
        self.logs: dict[str, str] = {}
        self.created: list[Json] = []
        self.deleted: list[str] = []
        self.run_job = run_job or passes
        self._forbidden = forbidden
        self._versions = 0
        for item in items:
            self.put(item)

    def put(self, item: Json) -> None:
        """Create or replace an object."""
        self._versions += 1
        item["metadata"] |= {"resourceVersion": str(self._versions)}
        item["metadata"].setdefault("uid", f"uid-{self._versions}")
        self.kept[_key(item)] = item

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        if kind.plural in self._forbidden:
            raise ForbiddenError(f"{kind.plural} is forbidden")
        wanted = [term.partition("=") for term in selector.split(",") if term]
        return [
            copy.deepcopy(item)
            for (name, space, _), item in self.kept.items()
            if name == kind.kind
            and namespace in (None, space)
            and all(_has(item, key, value if equals else None) for key, equals, value in wanted)
        ]

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        return copy.deepcopy(self.kept.get((kind.kind, namespace or "", name)))

    def create(self, kind: Kind, manifest: Json) -> Json:
        made = copy.deepcopy(manifest)
        if _key(made) in self.kept:
            raise ConflictError(f"{kind.plural} {objects.name(made)} is there")
        self.put(made)
        self.created.append(copy.deepcopy(made))
        if kind.kind == "Job":
            self.run_job(self, made)
        return copy.deepcopy(made)

    def patch(
        self, kind: Kind, name: str, change: Mapping[str, Any], namespace: str | None = None
    ) -> Json:
        item = self.kept[(kind.kind, namespace or "", name)]
        version = (change.get("metadata") or {}).get("resourceVersion")
        if version not in (None, item["metadata"]["resourceVersion"]):
            raise ConflictError(f"{name} was changed")
        for key, value in change.items():
            item[key] = {**item.get(key, {}), **value}
        self.put(item)
        return copy.deepcopy(item)

    def delete(self, kind: Kind, name: str, namespace: str | None = None) -> None:
        if self.kept.pop((kind.kind, namespace or "", name), None):
            self.deleted.append(name)

    def text(self, path: str, _query: object, _timeout_s: float = 0) -> str | None:
        return self.logs.get(path.split("/")[-2])

    def jobs(self) -> list[Json]:
        return [item for (kind, _, _), item in self.kept.items() if kind == "Job"]


def _key(item: Json) -> Key:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _has(item: Json, key: str, value: str | None) -> bool:
    found = item["metadata"].get("labels", {})
    return key in found and value in (None, found[key])


def condition(kind: str, status: str = "True", **more: str) -> Json:
    return {"type": kind, "status": status, **more}


def ends(
    cluster: LiveFake, job: Json, lines: Sequence[Mapping[str, Any] | str], *, well: bool = True
) -> None:
    """End the Job with one pod per line, which is the last line of its log."""
    for index, line in enumerate(lines):
        text = line if isinstance(line, str) else json.dumps(line)
        add_pod(cluster, job, index, "Succeeded" if well else "Failed", f"begins\n{text}\n")
    kind = "Complete" if well else "Failed"
    job["status"] = {"conditions": [condition(kind, message="" if well else "a pod failed")]}


def add_pod(cluster: LiveFake, job: Json, index: int, phase: str, log: str = "") -> None:
    """A pod of the Job, with a container that ran unless it is Pending."""
    name = f"{job['metadata']['name']}-{index}"
    code = 0 if phase == "Succeeded" else 1
    states: dict[str, Json] = {"Pending": {}, "Running": {"running": {}}}
    state = states.get(phase, {"terminated": {"exitCode": code}})
    cluster.put(
        {
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": job["metadata"]["namespace"],
                "labels": {naming.JOB_NAME: job["metadata"]["name"]},
            },
            "spec": copy.deepcopy(job["spec"]["template"]["spec"]),
            "status": {"phase": phase, "containerStatuses": [{"name": "check", "state": state}]},
        }
    )
    cluster.logs[name] = log


def kind_of(job: Json) -> str:
    return str(job["metadata"]["labels"].get(naming.VALIDATION, "restore-drill"))


def passes(cluster: LiveFake, job: Json) -> None:
    """Let every Job succeed with one pod and result line per node."""
    pool = job["metadata"]["labels"].get(naming.POOL, "")
    count = job["spec"].get("parallelism", 1)
    facts = {"device": "cuda", "model": "NVIDIA L4", "driver": "580.1", "world_size": count}
    more: dict[str, Any] = {"bandwidth_gbps": 9.5} if kind_of(job) == "collective" else {}
    if kind_of(job) == "restore-drill":
        more = {"runs": 2, "restored": 2}
    lines = [
        {"validation": kind_of(job), "ok": True, "node": f"{pool}-{index}", **facts, **more}
        for index in range(count)
    ]
    ends(cluster, job, lines)


def job_result(kind: str, *lines: Mapping[str, Any] | str, well: bool = False) -> RunJob:
    """Let Jobs of one kind end with these lines; others pass."""

    def run_job(cluster: LiveFake, job: Json) -> None:
        if kind_of(job) == kind:
            ends(cluster, job, lines, well=well)
        else:
            passes(cluster, job)

    return run_job


def pool(name: str, low: int = 2, high: int = 2, nodes: str = "existing", **changes: Any) -> Json:
    """A pool as in stack.json."""
    return {
        "name": name,
        "workload": naming.GPU_TRAINING,
        "nodes": nodes,
        "capacity": "spot",
        "min": low,
        "max": high,
        "gpusPerNode": 1,
        "sharing": None,
        "gpuModel": "l4",
        "network": "tcp",
        "zone": "zone-a",
        "instanceTypes": ["g6.xlarge"],
        **changes,
    }


TEAMS = [
    {"name": "research", "tier": "research", "namespace": "team-research", "queue": "research"},
    {"name": "serving", "tier": "production", "namespace": "team-serving", "queue": "serving"},
]


def facts(*pools: Json, scheduler: str = "kueue") -> Json:
    """The ConfigMap that describes the stack."""
    contents = {
        "stack": "local",
        "cluster": "sandbox",
        "scheduler": scheduler,
        "pools": list(pools),
        "teams": TEAMS,
        "operators": ["kueue"],
        "expected": {
            one["name"]: {"allocatable": {naming.GPU: one["gpusPerNode"]}, "mtu": None}
            for one in pools
        },
    }
    return {
        "kind": "ConfigMap",
        "metadata": {"name": stack_facts.NAME, "namespace": stack_facts.NAMESPACE},
        "data": {stack_facts.KEY: json.dumps(contents)},
    }


def node(name: str, of: str, gpus: int = 1, *, ready: bool = True, **spec: Any) -> Json:
    labels = {naming.POOL: of, naming.CAPACITY: "spot"}
    labels |= {naming.ACCELERATOR: "nvidia", naming.WORKLOAD_TYPE: naming.GPU_TRAINING}
    taint = {"key": "dedicated", "value": naming.GPU_TRAINING, "effect": "NoSchedule"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [taint], **spec},
        "status": {
            "allocatable": {naming.GPU: str(gpus)},
            "conditions": [condition("Ready", "True" if ready else "False")],
        },
    }


def nodes(of: str, count: int = 2) -> list[Json]:
    return [node(f"{of}-{index}", of) for index in range(count)]


def template(
    kind: str, of: str = "", parallelism: int = 1, namespace: str = stack_facts.NAMESPACE
) -> Json:
    """A CronJob that is a template."""
    labels = {naming.VALIDATION: kind} | ({naming.POOL: of} if of else {})
    amounts = {naming.GPU: "1"} if of else {}
    container = {
        "name": "check",
        "image": "registry.example/trainer@sha256:" + "a" * 64,
        "env": [{"name": jobs.NODES_ENV, "value": str(parallelism)}],
        "resources": {"requests": amounts, "limits": dict(amounts)},
    }
    spec = {
        "parallelism": parallelism,
        "completions": parallelism,
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    return {
        "kind": "CronJob",
        "metadata": {
            "name": f"{kind}-{of}" if of else kind,
            "namespace": namespace,
            "labels": labels,
        },
        "spec": {"jobTemplate": {"metadata": {"labels": labels}, "spec": spec}},
    }


def templates(of: str) -> list[Json]:
    """Return all templates of a pool."""
    return [
        template("smoke", of, 2),
        template("collective", of, 2),
        template("train-single", of),
        template("train-multi", of, 2),
    ]


def whole(run_job: RunJob | None = None) -> LiveFake:
    """A stack of one pool where every stage passes; queueing has no templates."""
    drill = template("restore-drill", namespace="team-serving")
    return LiveFake(
        facts(pool("spot"), scheduler="volcano"),
        *nodes("spot"),
        *templates("spot"),
        drill,
        run_job=run_job,
    )


class Clock:
    """A clock that advances at each pause, which also calls `meanwhile`."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.now = 0.0
        self._meanwhile = meanwhile

    def rest(self) -> None:
        self.now += 1.0
        self._meanwhile()

    def poller(self, limit_s: float = 10.0) -> Poller:
        return Poller(limit_s=limit_s, pause=self.rest, clock=lambda: self.now)


def make_session(cluster: LiveFake, clock: Clock | None = None, **changes: Any) -> Session:
    """Return a session for all pools of the cluster's stack."""
    of = stack_facts.read(cluster)  # type: ignore[arg-type]
    poller = (clock or Clock()).poller()
    usual: dict[str, Any] = {
        "cluster": cluster,
        "stack": of,
        "jobs": Jobs(cluster, "c1", poller, lambda _: None),  # type: ignore[arg-type]
        "pools": of.pools,
    }
    return Session(**usual | changes)
