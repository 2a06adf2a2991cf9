"""With Volcano or YuniKorn: what queues in a team's namespace queues in the team's own queue."""

from __future__ import annotations

from infra.domain.scheduler import YUNIKORN_QUEUE, Scheduler
from infra.kubernetes.objects import Manifest
from infra.tenancy.admission import pods
from infra.tenancy.admission.policy import Rule, policy, resources, text

_NAME = "queue-name"


def own_queue(scheduler: Scheduler, prefix: str, taint_key: str) -> Manifest:
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
        variables=pods.TEAM,
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
        variables={**pods.TEAM, **pods.PODS, **pods.on_gpu_nodes(taint_key)},
        rules=[
            Rule(
                holds=(
                    f"!variables.gpu || {pods.label(YUNIKORN_QUEUE)} == "
                    f"{text(prefix)} + variables.team"
                ),
                message=f"this queue is not the team's; label the pod {YUNIKORN_QUEUE}: {prefix}TEAM",
            )
        ],
    )
