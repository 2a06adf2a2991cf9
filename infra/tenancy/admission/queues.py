"""Nothing reaches a GPU but through the team's own queue, whatever kind of object it comes in.

A run is created suspended and with the queue's name; only Kueue starts it, and marks its pods when it does. A
pod for a GPU node must come from a controller that made it for a run, and must carry that mark.
"""

from __future__ import annotations

from infra.domain import naming
from infra.kubernetes.objects import Manifest
from infra.tenancy.admission import pods
from infra.tenancy.admission.controllers import (
    POD_PARENTS,
    RUN_CONTROLLERS,
    is_one_of,
    made_by,
    part_of_another_run,
)
from infra.tenancy.admission.policy import Rule, policy, text, texts

_IS_RUN = f"request.kind.kind in {texts(pods.RUN_KINDS)}"
_QUEUE = pods.label(naming.QUEUE_NAME)
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
                f"({made_by(POD_PARENTS)} && {pods.label(pods.PODSET)} != '')"
            ),
            message=f"GPUs are had through the team's queue only, never by a pod alone; {_REMEDY}",
        ),
        Rule(
            holds=(
                f"!variables.gpu || {_IS_RUN} || request.kind.kind in ['Pod', 'TrainingRuntime']"
            ),
            message=(
                f"GPUs are had by runs only, and runs are of kind {', '.join(pods.RUN_KINDS)}; "
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
                f"variables.pods.all(p, !({text(pods.PODSET)} in p.?metadata.?labels.orValue({{}})))"
            ),
            message=f"only Kueue says that pods are admitted; remove the label {pods.PODSET}",
        ),
        Rule(
            holds="variables.controller || "
            + pods.label("kueue.x-k8s.io/prebuilt-workload-name")
            + " == ''",
            message="a run brings no Workload; remove kueue.x-k8s.io/prebuilt-workload-name",
        ),
    ]


def through_the_queue(taint_key: str) -> Manifest:
    """The policy."""
    changed = "object.spec != oldObject.spec || object.metadata != oldObject.metadata"
    return policy(
        "queue",
        matches=pods.everything_with_pods(),
        conditions={
            "may-start-pods": (
                "request.operation == 'CREATE' || "
                f"(({changed}) && !({is_one_of(RUN_CONTROLLERS)}) && "
                "!has(object.metadata.deletionTimestamp))"
            )
        },
        variables={
            **pods.TEAM,
            **pods.PODS,
            **pods.on_gpu_nodes(taint_key),
            "controller": is_one_of(RUN_CONTROLLERS),
            "child": part_of_another_run(),
        },
        rules=_rules(),
    )


def by_the_scheduler(taint_key: str, scheduler: str) -> Manifest:
    """The policy where another scheduler queues: pods for GPU nodes name it, so its queues count them.

    Weaker than Kueue's: whatever names the scheduler may queue, be it a run or a pod alone.
    """
    return policy(
        "queue",
        matches=pods.everything_with_pods(),
        conditions=pods.NEW_PODS,
        variables={**pods.PODS, **pods.on_gpu_nodes(taint_key)},
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
