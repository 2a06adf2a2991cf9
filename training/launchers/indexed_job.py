"""`indexed-job`: many nodes without any operator: an Indexed Job and a headless Service."""

from __future__ import annotations

from infra.domain import naming
from infra.domain.launcher_support import JOB
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.launchers import pod, pod_failure_policy, restarts
from training.spec import RunSpec


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """Return the Service that names the pods RUN_ID-INDEX.RUN_ID, and the Job.

    The ranks start again in their pods, by the parent process of the pod's command, which counts failures. The Job
    replaces pods of lost nodes one by one, and ends with the first pod that gives up.
    """
    first = f"{run.run_id}-0.{run.run_id}"
    main = pod.worker(run, platform, first, node_rank=pod.COMPLETION_INDEX)
    main["command"] = restarts.counted(run, main["command"])
    template = pod.template(run, platform, main)
    template["spec"]["subdomain"] = run.run_id
    return [
        pod.headless_service(run, platform, {naming.JOB_NAME: run.run_id}),
        {
            **JOB.header,
            "metadata": pod.run_metadata(run, platform),
            "spec": {
                "completionMode": "Indexed",
                "parallelism": run.nodes,
                "completions": run.nodes,
                "backoffLimit": run.max_restarts * run.nodes,
                "podFailurePolicy": pod_failure_policy.in_place(run),
                "podReplacementPolicy": "Failed",
                "template": template,
            },
        },
    ]
