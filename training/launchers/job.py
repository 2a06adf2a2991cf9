"""`job`: one node, a plain Job of one pod."""

from __future__ import annotations

from infra.domain.launcher_support import JOB
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.launchers import pod, pod_failure_policy, restarts
from training.spec import RunSpec


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """Return one Job of one pod, which starts its ranks again after a failure.

    It is replaced where that may help, or when it is killed; see pod_failure_policy.
    """
    main = pod.worker(run, platform, None)
    main["command"] = restarts.counted(run, main["command"])
    return [
        {
            **JOB.header,
            "metadata": pod.run_metadata(run, platform),
            "spec": {
                "parallelism": 1,
                "completions": 1,
                "backoffLimit": run.max_restarts,
                "podFailurePolicy": pod_failure_policy.in_place(run),
                "podReplacementPolicy": "Failed",
                "template": pod.template(run, platform, main),
            },
        }
    ]
