"""`pytorchjob`: Training Operator v1, for clusters that still have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.domain.launcher_support import PYTORCH_JOB
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.deployment.launchers import pod, program
from training.spec import RunSpec

_REPLICA_INDEX: Final = "metadata.labels['training.kubeflow.org/replica-index']"


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """Return one PyTorchJob: a master, and nodes - 1 workers that rendezvous at the master's Service.

    The operator's ExitCode policy treats every code below 128 as permanent, 75 too, so pods restart in place; a
    bad configuration (78) is retried until backoffLimit, which this operator cannot avoid.
    """
    host = f"{run.run_id}-master-0" if run.nodes > 1 else None

    def replicas(count: int, more_env: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        main = pod.worker(run, platform, host, name="pytorch", more_env=more_env)
        return {
            "replicas": count,
            "restartPolicy": "OnFailure",
            "template": pod.template(run, platform, main, restart="OnFailure"),
        }

    specs = {"Master": replicas(1)}
    if run.nodes > 1:
        specs["Worker"] = replicas(run.nodes - 1, program.worker_index_env(run, _REPLICA_INDEX))
    return [
        {
            **PYTORCH_JOB.header,
            "metadata": pod.run_metadata(run, platform),
            "spec": {
                "nprocPerNode": str(run.processes_per_node),
                "runPolicy": {"backoffLimit": run.max_restarts, "cleanPodPolicy": "Running"},
                "pytorchReplicaSpecs": specs,
            },
        }
    ]
