"""`pytorchjob`: Training Operator v1, for clusters that still have it."""

from __future__ import annotations

from typing import Any

from infra.domain.launcher_support import PYTORCH_JOB
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.deployment.launchers import pod
from training.spec import RunSpec


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """Return one PyTorchJob: a master, and nodes - 1 workers that rendezvous at the master's Service.

    The operator's ExitCode policy treats every code below 128 as permanent, 75 too, so pods restart in place; a
    bad configuration (78) is retried until backoffLimit, which this operator cannot avoid.
    """
    host = f"{run.run_id}-master-0" if run.nodes > 1 else None
    main = pod.container(run, platform, pod.torchrun_command(run, host), name="pytorch")

    def replicas(count: int) -> dict[str, Any]:
        return {
            "replicas": count,
            "restartPolicy": "OnFailure",
            "template": pod.template(run, platform, main, restart="OnFailure"),
        }

    specs = {"Master": replicas(1)}
    if run.nodes > 1:
        specs["Worker"] = replicas(run.nodes - 1)
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
