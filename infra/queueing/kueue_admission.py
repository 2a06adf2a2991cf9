"""Kueue's admission policies: pods use GPUs only through their team's queue, whatever object creates them.

A run is created suspended and with the queue's name; only Kueue starts it, and labels its pods when it does. A
pod for a GPU node must be created by a controller for a run, and must have that label.
"""

from __future__ import annotations

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import (
    Rule,
    annotations_of,
    finalizers_of,
    labels_of,
    owners_of,
    policy,
    resources,
    text,
    texts,
    unchanged,
)
from infra.kubernetes.controller_accounts import (
    GARBAGE_COLLECTOR,
    KUEUE,
    POD_PARENTS,
    RUN_CONTROLLERS,
    STEERING,
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
_KUEUE = "kueue.x-k8s.io"
_REMEDY = "deploy a run file of training/runs, or label the run kueue.x-k8s.io/queue-name: TEAM"


def _rules() -> list[Rule]:
    """Return the rules of pods, of runs, and of Kueue's marks."""
    child = "variables.child"
    return [
        Rule(
            holds=(
                "!variables.gpu || request.kind.kind != 'Pod' || "
                f"({created_by(POD_PARENTS)} && {pod_templates.label(pod_templates.PODSET)} != '')"
            ),
            message=f"this GPU pod is not part of an admitted run; GPUs require the team's queue; {_REMEDY}",
        ),
        Rule(
            holds=(
                f"!variables.gpu || {_IS_RUN} || request.kind.kind in ['Pod', 'TrainingRuntime']"
            ),
            message=(
                f"this kind may not use GPUs; it must be one of {', '.join(pod_templates.RUN_KINDS)}; "
                "remove nvidia.com/gpu and the toleration, or use one of these kinds"
            ),
        ),
        Rule(
            holds=f"!variables.gpu || !({_IS_RUN}) || {child} || {_QUEUE} == variables.team",
            message=f"this GPU run does not name its team's queue; {_REMEDY}",
        ),
        Rule(
            holds=f"{_QUEUE} in ['', variables.team]",
            message="this is not the team's queue; the queue must have the team's name; correct the label",
        ),
        Rule(
            holds=(
                f"!variables.gpu || !({_IS_RUN}) || {child} || request.operation != 'CREATE' || "
                f"{_SUSPENDED}"
            ),
            message=(
                "this GPU run is not suspended; GPU runs must be created suspended, "
                "and Kueue starts them; set suspend: true"
            ),
        ),
        Rule(
            holds=(
                "variables.controller || request.kind.kind == 'Pod' || "
                f"variables.pods.all(p, !({text(pod_templates.PODSET)} in p.?metadata.?labels.orValue({{}})))"
            ),
            message=(
                f"the label {pod_templates.PODSET} is reserved for Kueue, "
                "which sets it on admission; remove it"
            ),
        ),
        Rule(
            holds="variables.controller || "
            + pod_templates.label("kueue.x-k8s.io/prebuilt-workload-name")
            + " == ''",
            message=(
                "prebuilt Workloads are not allowed; Kueue creates a run's Workload; "
                "remove kueue.x-k8s.io/prebuilt-workload-name"
            ),
        ),
    ]


def require_team_queue(taint_key: str) -> Manifest:
    """Require GPU pods and runs to go through the team's LocalQueue."""
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


def workloads_written_by_kueue() -> Manifest:
    """Let only Kueue write Workloads, which record admission; any user may deactivate one.

    What steers runs may write annotations; a policy of its own limits them (infra/addons/steering.py).
    """

    def others(of: str, against: str) -> str:
        return (
            f"{of}.spec.all(k, k == 'active' || (k in {against}.spec && "
            f"{of}.spec[k] == {against}.spec[k]))"
        )

    same = [
        others("dyn(object)", "dyn(oldObject)"),
        others("dyn(oldObject)", "dyn(object)"),
        f"{owners_of('object')} == {owners_of('oldObject')}",
        f"{finalizers_of('object')} == {finalizers_of('oldObject')}",
        f"{labels_of('object')} == {labels_of('oldObject')}",
        f"({is_one_of(STEERING)} || "
        f"({unchanged(annotations_of('object'), annotations_of('oldObject'), _KUEUE)}))",
    ]
    return policy(
        "workloads",
        matches=[resources(_KUEUE, "workloads", "workloads/status")],
        rules=[
            Rule(
                holds=(
                    f"{is_one_of((*KUEUE, *GARBAGE_COLLECTOR))} || (request.operation == 'UPDATE' && "
                    f"request.?subResource.orValue('') == '' && {' && '.join(same)})"
                ),
                message=(
                    "only Kueue may write Workloads; users may change spec.active only; to queue a run "
                    "set its label kueue.x-k8s.io/queue-name, to stop it set spec.active: false"
                ),
            )
        ],
    )
