"""Admission policy of schedulers that read a pod's `schedulerName`."""

from __future__ import annotations

from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, text
from infra.kubernetes.objects import Manifest


def require_scheduler(taint_key: str, scheduler: str) -> Manifest:
    """The policy where another scheduler queues: pods for GPU nodes name it, so its queues count them.

    Weaker than Kueue's: whatever names the scheduler may queue, be it a run or a pod alone.
    """
    return policy(
        "queue",
        matches=pod_templates.everything_with_pods(),
        conditions=pod_templates.NEW_PODS,
        variables={**pod_templates.PODS, **pod_templates.on_gpu_nodes(taint_key)},
        rules=[
            Rule(
                holds=(
                    "!variables.gpu || variables.pods.all(p, "
                    f"p.spec.?schedulerName.orValue('') == {text(scheduler)})"
                ),
                message=f"GPUs are had through {scheduler} only; set schedulerName: {scheduler}",
            )
        ],
    )
