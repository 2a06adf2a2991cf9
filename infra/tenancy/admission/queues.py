"""Nothing reaches a GPU but through the team's own queue, whatever kind of object it comes in.

A run is created suspended and with the queue's name; only Kueue starts it, and marks its pods when it does. A
pod for a GPU node must come from a controller that made it for a run, and must carry that mark.
"""

from __future__ import annotations

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, text, texts
from infra.kubernetes.controller_accounts import (
    POD_PARENTS,
    RUN_CONTROLLERS,
    created_by,
    is_one_of,
    is_part_of_run,
)
from infra.kubernetes.objects import Manifest

_IS_RUN = f"request.kind.kind in {texts(pod_templates.RUN_KINDS)}"
_QUEUE = pod_templates.label(naming.QUEUE_NAME)
_SUSPENDED = (
    "dyn(object).spec.?suspend.orValue(false) || "
    "dyn(object).spec.?runPolicy.?suspend.orValue(false)"
)
_REMEDY = "deploy a run file of training/runs, or label the run kueue.x-k8s.io/queue-name: TEAM"


def _rules() -> list[Rule]:
    return [*_of_pods(), *_of_runs(), *_of_marks()]


def _of_pods() -> list[Rule]:
    return [
        Rule(
            holds=(
                "!variables.gpu || request.kind.kind != 'Pod' || "
                f"({created_by(POD_PARENTS)} && {pod_templates.label(pod_templates.PODSET)} != '')"
            ),
            message=f"GPUs are had through the team's queue only, never by a pod alone; {_REMEDY}",
        ),
        Rule(
            holds=(
                f"!variables.gpu || {_IS_RUN} || request.kind.kind in ['Pod', 'TrainingRuntime']"
            ),
            message=(
                f"GPUs are had by runs only, and runs are of kind {', '.join(pod_templates.RUN_KINDS)}; "
                "remove nvidia.com/gpu and the toleration, or make it a run"
            ),
        ),
    ]


def _of_runs() -> list[Rule]:
    child = "variables.child"
    return [
        Rule(
            holds=f"!variables.gpu || !({_IS_RUN}) || {child} || {_QUEUE} == variables.team",
            message=f"a run on GPUs must name its own team's queue; {_REMEDY}",
        ),
        Rule(
            holds=f"{_QUEUE} in ['', variables.team]",
            message="this queue is not the team's; the team's queue is called like the team",
        ),
        Rule(
            holds=(
                f"!variables.gpu || !({_IS_RUN}) || {child} || request.operation != 'CREATE' || "
                f"{_SUSPENDED}"
            ),
            message="a run on GPUs is created suspended, and Kueue starts it; set suspend: true",
        ),
    ]


def _of_marks() -> list[Rule]:
    return [
        Rule(
            holds=(
                "variables.controller || request.kind.kind == 'Pod' || "
                f"variables.pods.all(p, !({text(pod_templates.PODSET)} in p.?metadata.?labels.orValue({{}})))"
            ),
            message=f"only Kueue says that pods are admitted; remove the label {pod_templates.PODSET}",
        ),
        Rule(
            holds="variables.controller || "
            + pod_templates.label("kueue.x-k8s.io/prebuilt-workload-name")
            + " == ''",
            message="a run brings no Workload; remove kueue.x-k8s.io/prebuilt-workload-name",
        ),
    ]


def require_team_queue(taint_key: str) -> Manifest:
    """The policy."""
    changed = "object.spec != oldObject.spec || object.metadata != oldObject.metadata"
    return policy(
        "queue",
        matches=pod_templates.everything_with_pods(),
        conditions={
            "may-start-pods": (
                "request.operation == 'CREATE' || "
                f"(({changed}) && !({is_one_of(RUN_CONTROLLERS)}) && "
                "!has(object.metadata.deletionTimestamp))"
            )
        },
        variables={
            **pod_templates.TEAM,
            **pod_templates.PODS,
            **pod_templates.on_gpu_nodes(taint_key),
            "controller": is_one_of(RUN_CONTROLLERS),
            "child": is_part_of_run(),
        },
        rules=_rules(),
    )


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
