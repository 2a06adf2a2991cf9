"""`jobset`: the default for many nodes. A gang restarts as a whole, depending on the cause; so does each group."""

from __future__ import annotations

from typing import Any, Final

from infra.domain.launcher_support import JOBSET
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.launchers import pod, pod_failure_policy, restarts
from training.spec import RunSpec
from trainyard import contract

WORKER: Final = "worker"
"""Name of the one ReplicatedJob; pods are GANG-worker-0-INDEX."""

_POD_FAILURE_POLICY: Final = ["PodFailurePolicy"]
"""Reason of the Job controller when a rule of podFailurePolicy ended the Job."""

_GAVE_UP: Final = {
    "name": "restartsUsedUp",
    "action": "FailJobSet",
    "onJobFailureReasons": _POD_FAILURE_POLICY,
}
"""What is left of the Job's rules: see pod_failure_policy.gang."""


def failure_policy(run: RunSpec) -> dict[str, Any]:
    """Return restart rules by cause, which the Job controller's message contains.

    A bad configuration is never retried. A preempted or disrupted gang restarts without counting. Anything else
    restarts and counts, but for a pod that has used up the restarts of its ranks.
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
                "onJobFailureMessagePatterns": [f"exit code {contract.EXIT_BAD_CONFIG} "],
            },
            {
                "name": "preempted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": _POD_FAILURE_POLICY,
                "onJobFailureMessagePatterns": [
                    f"exit code {contract.EXIT_PREEMPTED} ",
                    *(f"condition {kind} " for kind in pod_failure_policy.DISRUPTED),
                ],
            },
            *([_GAVE_UP] if restarts.has_one_pod(run) else []),
        ],
    }


def worker_job(
    run: RunSpec, template: dict[str, Any], container: str = pod.CONTAINER
) -> dict[str, Any]:
    """Return the Job spec of all workers: an index per node; the first failure ends the Job."""
    return {
        "completionMode": "Indexed",
        "parallelism": run.nodes,
        "completions": run.nodes,
        "backoffLimit": 0,
        "podFailurePolicy": pod_failure_policy.gang(run, container),
        "podReplacementPolicy": "Failed",
        "template": template,
    }


def attempt_env() -> dict[str, Any]:
    """Return the variable with the JobSet's restart count, a label of every pod."""
    path = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
    return {"name": contract.ATTEMPT_ENV, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """Return a JobSet for the run, or for each of its groups; each creates the headless Service of its name."""
    return [_jobset(gang, platform) for gang in run.gangs()]


def _jobset(run: RunSpec, platform: Platform) -> Manifest:
    alone = restarts.has_one_pod(run)
    first = None if alone else f"{run.gang_id}-{WORKER}-0-0.{run.gang_id}"
    main = pod.worker(
        run, platform, first, more_env=[attempt_env()], node_rank=pod.COMPLETION_INDEX
    )
    if alone:
        main["command"] = restarts.counted(run, main["command"])
    job = worker_job(run, pod.template(run, platform, main))
    return {
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
