"""`job`: one node, `torchrun --standalone`, a plain Job."""

from __future__ import annotations

from infra.domain.launcher_support import JOB
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.deployment.launchers import pod, pod_failure_policy
from training.spec import RunSpec


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """Return one Job of one pod, which is replaced after a failure up to `max_restarts` times."""
    main = pod.worker(run, platform, None)
    return [
        {
            **JOB.header,
            "metadata": pod.run_metadata(run, platform),
            "spec": {
                "parallelism": 1,
                "completions": 1,
                "backoffLimit": run.max_restarts,
                "podFailurePolicy": pod_failure_policy.standalone(run),
                "podReplacementPolicy": "Failed",
                "template": pod.template(run, platform, main),
            },
        }
    ]
