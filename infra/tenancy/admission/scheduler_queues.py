"""With Volcano or YuniKorn: what queues in a team's namespace queues in the team's own queue."""

from __future__ import annotations

from infra.domain.scheduler import YUNIKORN_QUEUE, Scheduler
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, resources, text
from infra.kubernetes.objects import Manifest

_NAME = "queue-name"


def require_own_queue(scheduler: Scheduler, prefix: str, taint_key: str) -> Manifest:
    """The policy. The team's queue is called `prefix` and then like the team."""
    if scheduler is Scheduler.VOLCANO:
        return _of_groups(prefix)
    return _of_pods(prefix, taint_key)


def _of_groups(prefix: str) -> Manifest:
    """Volcano counts a pod where its PodGroup says. It makes one for a pod that has none, in the queue that
    the pod names, or in `default`: that group must pass here as well."""
    return policy(
        _NAME,
        matches=[resources(Scheduler.VOLCANO.pod_groups, "podgroups")],
        conditions={
            "queues": "request.operation == 'CREATE' || object.spec != oldObject.spec",
        },
        variables=pod_templates.TEAM,
        rules=[
            Rule(
                holds=(f"dyn(object).spec.?queue.orValue('') == {text(prefix)} + variables.team"),
                message=f"this queue is not the team's; set spec.queue: {prefix}TEAM",
            )
        ],
    )


def _of_pods(prefix: str, taint_key: str) -> Manifest:
    """YuniKorn counts a pod where this label of its says, before any other way to name a queue."""
    return policy(
        _NAME,
        matches=[resources("", "pods")],
        conditions={
            "queues": (
                "request.operation == 'CREATE' || object.metadata.?labels.orValue({}) != "
                "oldObject.metadata.?labels.orValue({})"
            ),
        },
        variables={
            **pod_templates.TEAM,
            **pod_templates.PODS,
            **pod_templates.on_gpu_nodes(taint_key),
        },
        rules=[
            Rule(
                holds=(
                    f"!variables.gpu || {pod_templates.label(YUNIKORN_QUEUE)} == "
                    f"{text(prefix)} + variables.team"
                ),
                message=f"this queue is not the team's; label the pod {YUNIKORN_QUEUE}: {prefix}TEAM",
            )
        ],
    )
