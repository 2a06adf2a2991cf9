"""`indexed-job`: many nodes without any operator: an Indexed Job and a headless Service."""

from __future__ import annotations

from infra.domain import naming
from infra.domain.launcher_support import JOB
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.deployment.launchers import pod, pod_failure_policy
from training.spec import RunSpec


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """Return the Service that names the pods RUN_ID-INDEX.RUN_ID, and the Job.

    The Job replaces pods one by one, never the gang as a whole; when one fails, the others fail with it, so each
    failure of the gang can count once per node.
    """
    first = f"{run.run_id}-0.{run.run_id}"
    main = pod.worker(run, platform, first, node_rank=pod.COMPLETION_INDEX)
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
                "podFailurePolicy": pod_failure_policy.standalone(run),
                "podReplacementPolicy": "Failed",
                "template": template,
            },
        },
    ]
