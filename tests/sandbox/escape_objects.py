"""Objects that try to evade the admission policies, each with its closest allowed variant."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from infra.config import parse, platform_record
from infra.domain import naming
from infra.domain.platform import Platform
from tests.golden.example_runs import PREPARED, run
from training import job as job_objects
from training.launchers import LAUNCHERS
from training.spec import Groups, Launch, Resources

Json = dict[str, Any]

RESEARCH, PRODUCTION = "esc", "esc-prod"
IMAGE = "sandbox.trainyard.dev/host@sha256:" + "0" * 64
GPU_TAINT = {"key": "dedicated", "value": naming.GPU_TRAINING, "effect": "NoSchedule"}


def values() -> Json:
    """A stack of two teams without nodes: queued runs stay pending."""
    pool = {"zone": "esc-zone", "nodes": "kwok", "min": 1, "max": 1}
    quota = {"cpu": "64", "memory": "128Gi", "gpus": 8}
    return {
        "cluster": {"provider": "existing", "name": "escapes"},
        "taintKey": "dedicated",
        "cohort": "escapes",
        "nodePools": [
            {
                "name": "esc-pool",
                "capacity": "on-demand",
                "instanceTypes": ["p4d.24xlarge"],
                "network": "efa",
                **pool,
            }
        ],
        "storage": {"checkpoints": "1Gi", "datasets": "1Gi"},
        "operators": {
            name: {"provided": True}
            for name in ("kueue", "jobset", "kubeflowTrainer", "trainingOperator", "mpiOperator")
        },
        "teams": [
            {"name": RESEARCH, "tier": "research", "quota": quota},
            {"name": PRODUCTION, "tier": "production", "quota": quota},
        ],
        "registries": ["sandbox.trainyard.dev"],
        "elasticRuns": {"image": IMAGE},
    }


KINDS = {
    "TrainJob": ("trainer.kubeflow.org", "v1alpha1", "trainjobs"),
    "TrainingRuntime": ("trainer.kubeflow.org", "v1alpha1", "trainingruntimes"),
    # Kueue does not start without it where there are TrainJobs.
    "ClusterTrainingRuntime": ("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes"),
    "PyTorchJob": ("kubeflow.org", "v1", "pytorchjobs"),
    "MPIJob": ("kubeflow.org", "v2beta1", "mpijobs"),
}
"""Kinds of operators that the sandbox does not run; admission policies need only their definitions."""


_PLURALS = {kind: plural for kind, (_, _, plural) in KINDS.items()}


def collection(manifest: Mapping[str, Any]) -> str:
    version = manifest["apiVersion"]
    prefix = "/api/v1" if version == "v1" else f"/apis/{version}"
    plural = _PLURALS.get(manifest["kind"], manifest["kind"].lower() + "s")
    namespace = manifest["metadata"].get("namespace")
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}{inside}/{plural}"


def _spec(gpu: bool, team_name: str) -> Json:
    """Return the pod spec of a run without fields that need other objects."""
    spec = run(
        dataset=PREPARED,
        name="escape",
        team=team_name,
        nodes=1,
        job_kind="job",
        processes_per_node=8,
        capacity_types=("on-demand",),
        resources=Resources(cpu="1", memory="1Gi", shm="64Mi"),
        image=IMAGE,
    )
    manifest = LAUNCHERS["job"].render(spec, platform())[-1]
    body: Json = copy.deepcopy(manifest["spec"]["template"]["spec"])
    for name in ("volumes", "affinity", "priorityClassName"):
        body.pop(name, None)
    main = body["containers"][0]
    main.pop("volumeMounts")
    if not gpu:
        body.pop("tolerations")
        for amounts in main["resources"].values():
            amounts.pop(naming.GPU)
    return body


def platform() -> Platform:
    return platform_record.platform(parse(values()), "escapes")


def template(*, gpu: bool = False, team: str = RESEARCH, **spec: Any) -> Json:
    """A pod template; `spec` replaces fields of the pod."""
    return {"metadata": {"labels": {"app": "escape"}}, "spec": _spec(gpu, team) | spec}


def metadata(team_name: str, **fields: Any) -> Json:
    return {"name": "escape", "namespace": naming.namespace(team_name), **fields}


def pod(*, gpu: bool = False, team: str = RESEARCH, meta: Json | None = None, **spec: Any) -> Json:
    body = template(gpu=gpu, team=team, **spec)["spec"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(team, **(meta or {})),
        "spec": body,
    }


def queued(team: str = RESEARCH, **labels: str) -> Json:
    """Labels of a run in the team's queue."""
    return {"labels": {naming.QUEUE_NAME: team, **labels}}


def job(
    *, gpu: bool = False, team: str = RESEARCH, meta: Json | None = None, **fields: Any
) -> Json:
    """A Job; without `meta` one that is queued if it asks for GPUs."""
    if meta is None:
        meta = queued(team) if gpu else {}
    found = {"template": template(gpu=gpu, team=team), "suspend": gpu}
    spec = {**found, **fields}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(team, **meta),
        "spec": spec,
    }


def jobset(
    *, gpu: bool = False, team: str = RESEARCH, meta: Json | None = None, **fields: Any
) -> Json:
    if meta is None:
        meta = queued(team) if gpu else {}
    child = {"spec": {"parallelism": 1, "completions": 1, "template": template(gpu=gpu, team=team)}}
    spec = {
        "replicatedJobs": [{"name": "worker", "replicas": 1, "template": child}],
        "suspend": gpu,
        **fields,
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(team, **meta),
        "spec": spec,
    }


def other_run(kind: str, *, gpu: bool, meta: Json, suspend: bool = True) -> Json:
    """A run of an operator of Kubeflow."""
    group, version, _ = KINDS[kind]
    one = {"replicas": 1, "template": template(gpu=gpu)}
    specs: dict[str, Json] = {
        "TrainJob": {"suspend": suspend, "runtimeRef": {"name": "escape"}},
        "PyTorchJob": {
            "runPolicy": {"suspend": suspend},
            "pytorchReplicaSpecs": {"Master": one, "Worker": one},
        },
        "MPIJob": {"runPolicy": {"suspend": suspend}, "mpiReplicaSpecs": {"Worker": one}},
        "TrainingRuntime": {
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {"name": "node", "template": {"spec": {"template": template(gpu=gpu)}}}
                    ]
                }
            }
        },
    }
    return {
        "apiVersion": f"{group}/{version}",
        "kind": kind,
        "metadata": metadata(RESEARCH, **meta),
        "spec": specs[kind],
    }


def launched(launcher: str, team: str = RESEARCH) -> Json:
    """Return a rendered run, suspended as by Kueue's webhooks."""
    return launched_objects(launcher, team)[-1]


def launched_objects(
    launcher: str, team: str = RESEARCH, by: str = "", groups: Groups | None = None
) -> list[Json]:
    """Return all objects of a rendered run; the run itself is suspended as by Kueue's webhooks."""
    spec = run(
        dataset=PREPARED,
        name="launched",
        team=team,
        nodes=1 if LAUNCHERS[launcher].support.single_node or groups else 2,
        job_kind=launcher,
        capacity_types=("on-demand",),
        image=IMAGE,
        max_hours=1.0,
        groups=groups,
    )
    found: list[Json] = copy.deepcopy(
        job_objects.manifests(spec, platform(), "c" * 40, Launch(by=by))
    )
    manifest = found[-1]
    if manifest["kind"] in ("PyTorchJob", "MPIJob"):
        manifest["spec"]["runPolicy"]["suspend"] = True
    elif manifest["kind"] == "TrainJob":
        manifest["spec"]["suspend"] = True
    return found


def controller(kind: str, *, gpu: bool, **spec: Any) -> Json:
    """Return a workload of Kubernetes that Kueue does not manage."""
    inner = template(gpu=gpu, **spec)
    selector = {"matchLabels": {"app": "escape"}}
    always = {"template": {**inner, "spec": inner["spec"] | {"restartPolicy": "Always"}}}
    bodies: dict[str, tuple[str, Json]] = {
        "Deployment": ("apps/v1", {"selector": selector, **always}),
        "StatefulSet": ("apps/v1", {"selector": selector, "serviceName": "escape", **always}),
        "DaemonSet": ("apps/v1", {"selector": selector, **always}),
        "ReplicaSet": ("apps/v1", {"selector": selector, "replicas": 1, **always}),
        "ReplicationController": ("v1", {"selector": {"app": "escape"}, **always}),
        "CronJob": (
            "batch/v1",
            {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": inner}}},
        ),
    }
    version, body = bodies[kind]
    return {"apiVersion": version, "kind": kind, "metadata": metadata(RESEARCH), "spec": body}


def claims(kind: str = "ResourceClaim") -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    spec: Json = {"devices": {"requests": [request]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": metadata(RESEARCH),
        "spec": {"spec": spec} if kind.endswith("Template") else spec,
    }
