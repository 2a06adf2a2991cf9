"""Admission policy of schedulers that read a pod's `schedulerName`."""

from __future__ import annotations

from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, text
from infra.kubernetes.objects import Manifest


def require_scheduler(taint_key: str, scheduler: str) -> Manifest:
    """Require pods for GPU nodes to name the scheduler, whose queues then count them.

    Weaker than Kueue's policy: a pod without a run may use the queue as well.
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
                message=(
                    f"this GPU pod uses another scheduler; GPU pods must use {scheduler}; "
                    f"set schedulerName: {scheduler}"
                ),
            )
        ],
    )
