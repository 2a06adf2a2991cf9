"""`pytorchjob`: Training Operator v1, for clusters that still have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.domain.launcher_support import PYTORCH_JOB
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.launchers import pod, program, restarts
from training.spec import RunSpec
from trainyard import contract

_REPLICA_INDEX: Final = "metadata.labels['training.kubeflow.org/replica-index']"
WAITING: Final = "await-workers"
"""Name of the master's init container."""
_REQUESTS: Final = {"cpu": "100m", "memory": "128Mi"}


def _await_workers(run: RunSpec) -> dict[str, Any]:
    """Return the master's init container, which ends once the pods of all workers are ready."""
    hosts = [f"{run.run_id}-worker-{index}" for index in range(run.nodes - 1)]
    return {
        "name": WAITING,
        "image": run.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "trainyard.await_hosts", *hosts],
        **({} if run.program else {"workingDir": contract.WORKSPACE}),
        "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}, *program.library_env(run)],
        "resources": {"requests": dict(_REQUESTS), "limits": dict(_REQUESTS)},
        "volumeMounts": [{"name": "config", "mountPath": contract.CONFIG_MOUNT, "readOnly": True}],
        "securityContext": pod.restricted(),
    }


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """Return one PyTorchJob: a master, and nodes - 1 workers that rendezvous at the master's Service.

    With the operator's ExitCode policy codes below 128 end the job and others replace the pod, without any limit;
    a parent process of the pod's command translates the codes and counts failures. A backoffLimit would count
    retries of the operator itself.

    The operator reports the job as running while the master is, also when a worker waits for a node that is gone.
    So the master starts after its workers, and Kueue requeues a gang that stays incomplete.
    """
    host = f"{run.run_id}-master-0" if run.nodes > 1 else None

    def replicas(
        count: int, *, leader: bool, more_env: Sequence[Mapping[str, Any]] = ()
    ) -> dict[str, Any]:
        main = pod.worker(run, platform, host, name="pytorch", more_env=more_env)
        main["command"] = restarts.counted(run, main["command"], leader=leader)
        template = pod.template(run, platform, main)
        if leader and run.nodes > 1:
            template["spec"].setdefault("initContainers", []).append(_await_workers(run))
        return {
            "replicas": count,
            "restartPolicy": "ExitCode",
            "template": pod.with_protocols(template),
        }

    specs = {"Master": replicas(1, leader=True)}
    if run.nodes > 1:
        index = program.worker_index_env(_REPLICA_INDEX)
        specs["Worker"] = replicas(run.nodes - 1, leader=False, more_env=index)
    return [
        {
            **PYTORCH_JOB.header,
            "metadata": pod.run_metadata(run, platform),
            "spec": {
                "nprocPerNode": str(run.processes_per_node),
                "runPolicy": {"cleanPodPolicy": "Running"},
                "pytorchReplicaSpecs": specs,
            },
        }
    ]
