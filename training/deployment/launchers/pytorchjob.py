"""`pytorchjob`: Training Operator v1, for clusters that still have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.domain.launcher_support import PYTORCH_JOB
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.deployment.launchers import pod, program, restarts
from training.spec import RunSpec

_REPLICA_INDEX: Final = "metadata.labels['training.kubeflow.org/replica-index']"


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """Return one PyTorchJob: a master, and nodes - 1 workers that rendezvous at the master's Service.

    With the operator's ExitCode policy codes below 128 end the job and others replace the pod, without any limit;
    a parent process of the pod's command translates the codes and counts failures. A backoffLimit would count
    retries of the operator itself.
    """
    host = f"{run.run_id}-master-0" if run.nodes > 1 else None

    def replicas(
        count: int, *, leader: bool, more_env: Sequence[Mapping[str, Any]] = ()
    ) -> dict[str, Any]:
        main = pod.worker(run, platform, host, name="pytorch", more_env=more_env)
        main["command"] = restarts.counted(run, main["command"], leader=leader)
        return {
            "replicas": count,
            "restartPolicy": "ExitCode",
            "template": pod.with_protocols(pod.template(run, platform, main)),
        }

    specs = {"Master": replicas(1, leader=True)}
    if run.nodes > 1:
        index = program.worker_index_env(run, _REPLICA_INDEX)
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
