"""`trainjob`: Kubeflow Trainer v2. Each run has its own runtime with the pods; no patches."""

from __future__ import annotations

from typing import Final

from infra.domain.launcher_support import TRAIN_JOB
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest, metadata
from training.launchers import jobset, pod
from training.spec import RunSpec

_NODE: Final = "node"
"""Name of the ReplicatedJob and the container that Kubeflow Trainer treats as the trainer."""


def runtime(run: RunSpec, platform: Platform) -> Manifest:
    """The run's TrainingRuntime, whose JobSet is like that of launcher `jobset`."""
    first = f"{run.run_id}-{_NODE}-0-0.{run.run_id}"
    main = pod.worker(
        run,
        platform,
        first,
        name=_NODE,
        more_env=[jobset.attempt_env()],
        node_rank=pod.COMPLETION_INDEX,
    )
    job = jobset.worker_job(run, pod.template(run, platform, main), _NODE)
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    nodes = {
        "name": _NODE,
        "replicas": 1,
        "template": {"metadata": {"labels": pod.labels(run) | step}, "spec": job},
    }
    namespace = platform.teams[run.team].namespace
    return {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": "TrainingRuntime",
        "metadata": metadata(run.run_id, namespace=namespace, labels=pod.labels(run)),
        "spec": {
            "mlPolicy": {"numNodes": run.nodes},
            "template": {
                "spec": {
                    "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                    "failurePolicy": jobset.failure_policy(run),
                    "replicatedJobs": [nodes],
                }
            },
        },
    }


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """Return a TrainingRuntime with the run's id as its name, and the TrainJob that refers to it.

    How a TrainJob patches pods changed between Kubeflow Trainer 2.1 and 2.2; a runtime per run works with both.
    Without the torch policy the operator sets no PET_* variables, which would override the command line.
    """
    train_job: Manifest = {
        **TRAIN_JOB.header,
        "metadata": pod.run_metadata(run, platform),
        "spec": {
            "runtimeRef": {
                "apiGroup": TRAIN_JOB.group,
                "kind": "TrainingRuntime",
                "name": run.run_id,
            },
            "trainer": {"numNodes": run.nodes},
        },
    }
    return [runtime(run, platform), train_job]
