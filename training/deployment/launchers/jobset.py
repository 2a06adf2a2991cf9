"""`jobset`: the default for many nodes. The gang is restarted as a whole, and by cause."""

from __future__ import annotations

from typing import Any, Final

from infra.domain.launcher_support import JOBSET
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training import spec
from training.deployment.launchers import pod
from training.spec import RunSpec

WORKER: Final = "worker"
"""Name of the one ReplicatedJob; pods are RUN_ID-worker-0-INDEX."""

_POD_FAILURE_POLICY: Final = ["PodFailurePolicy"]
"""The Job controller's reason when a rule of podFailurePolicy ended the Job."""


def failure_policy(run: RunSpec) -> dict[str, Any]:
    """Restart by cause; the causes are in the Job controller's message.

    A bad configuration is never retried. A preempted or disrupted gang starts again and does not
    count. Whatever else is the default: restart, and count.
    """
    return {
        "maxRestarts": run.max_restarts,
        # No pod of the old attempt may be alive when the new one opens the run's directory.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "badConfiguration",
                "action": "FailJobSet",
                "onJobFailureReasons": _POD_FAILURE_POLICY,
                "onJobFailureMessagePatterns": [f"exit code {spec.EXIT_BAD_CONFIG} "],
            },
            {
                "name": "preempted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": _POD_FAILURE_POLICY,
                "onJobFailureMessagePatterns": [
                    f"exit code {spec.EXIT_PREEMPTED} ",
                    "condition DisruptionTarget ",
                ],
            },
        ],
    }


def worker_job(
    run: RunSpec, template: dict[str, Any], container: str = pod.CONTAINER
) -> dict[str, Any]:
    """The Job spec of all workers: an index per node, over at the first failure."""
    return {
        "completionMode": "Indexed",
        "parallelism": run.nodes,
        "completions": run.nodes,
        "backoffLimit": 0,
        "podFailurePolicy": pod.gang_failure_policy(container),
        "podReplacementPolicy": "Failed",
        "template": template,
    }


def attempt_env() -> dict[str, Any]:
    """The JobSet's restart count, which it puts on every pod."""
    path = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
    return {"name": spec.ATTEMPT_ENV, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """One JobSet; it makes the headless Service RUN_ID itself."""
    first = f"{run.run_id}-{WORKER}-0-0.{run.run_id}"
    main = pod.container(run, platform, pod.torchrun_command(run, first), more_env=[attempt_env()])
    job = worker_job(run, pod.template(run, platform, main))
    return [
        {
            **JOBSET.header,
            "metadata": pod.run_metadata(run, platform),
            "spec": {
                "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                "failurePolicy": failure_policy(run),
                "replicatedJobs": [
                    {
                        "name": WORKER,
                        "replicas": 1,
                        "template": {"metadata": {"labels": pod.labels(run)}, "spec": job},
                    }
                ],
            },
        }
    ]
