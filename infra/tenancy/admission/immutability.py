"""Runs and their pods are immutable (docs/adr/08-runs.md).

Four changes would evade a queue: unsuspending a run, making it look like part of another one, marking it
finished while its pods run, and deleting it without them.
"""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import (
    Rule,
    finalizers_of,
    labels_of,
    owners_of,
    policy,
    resources,
    unchanged,
)
from infra.kubernetes.controller_accounts import (
    GARBAGE_COLLECTOR,
    KUEUE,
    OWNERS,
    RUN_CONTROLLERS,
    SPEC_WRITERS,
    is_one_of,
)
from infra.kubernetes.objects import Manifest

_UPDATED: Final = "request.operation == 'UPDATE'"
_KUEUE: Final = "kueue.x-k8s.io"


def _ownership(users: tuple[str, ...]) -> Rule:
    by_hand = (
        f"request.operation == 'UPDATE' ? {owners_of('object')} == {owners_of('oldObject')} : "
    )
    return Rule(
        holds=f"{is_one_of(users)} || ({by_hand}{owners_of('object')}.size() == 0)",
        message="only controllers may set owner references; remove metadata.ownerReferences",
    )


def run_spec_immutable() -> Manifest:
    """Let only controllers change a run's spec, also through its subresources: a write to `status` may change a
    Job's labels and owners, and `scale` changes the spec."""
    kept = unchanged(labels_of("object"), labels_of("oldObject"), _KUEUE, naming.DOMAIN)
    by_side_doors = pod_templates.runs("status", "scale", operations=("UPDATE",))
    return policy(
        "changes",
        matches=[*pod_templates.runs(), *pod_templates.runtimes(), *by_side_doors],
        rules=[
            Rule(
                holds=(
                    f"!({_UPDATED}) || object.spec == oldObject.spec || {is_one_of(SPEC_WRITERS)}"
                ),
                message=(
                    "runs are immutable, and only Kueue starts them; to change a run, delete it and deploy "
                    "a new version of its run file"
                ),
            ),
            Rule(
                holds=f"!({_UPDATED}) || {is_one_of(RUN_CONTROLLERS)} || ({kept})",
                message=(
                    "a run's queue, priority and id are immutable; delete the run and deploy another"
                ),
            ),
            _ownership((*OWNERS, *GARBAGE_COLLECTOR)),
            Rule(
                holds=f"!('orphan' in {finalizers_of('object')})",
                message="a run's pods must be deleted with it; remove the finalizer orphan",
            ),
            # The Job controller stops no pods of a run that is being deleted, even if others wait for its nodes.
            Rule(
                holds=(
                    f"{is_one_of((*OWNERS, *GARBAGE_COLLECTOR))} || {finalizers_of('object')}"
                    f".all(f, {_UPDATED} && f in {finalizers_of('oldObject')})"
                ),
                message=(
                    "users may not add finalizers to runs, "
                    "which would delay their deletion; remove metadata.finalizers"
                ),
            ),
        ],
    )


def pod_spec_immutable() -> Manifest:
    """Forbid changes to existing pods, ephemeral containers included, other than by controllers."""
    same_labels = f"{labels_of('object')} == {labels_of('oldObject')}"
    return policy(
        "live-pods",
        matches=[resources("", "pods", "pods/ephemeralcontainers", "pods/resize", "pods/status")],
        rules=[
            Rule(
                holds="request.?subResource.orValue('') != 'ephemeralcontainers'",
                message=(
                    "ephemeral containers are not allowed in running pods; "
                    "read the pod's log, or start another run"
                ),
            ),
            Rule(
                holds=f"!({_UPDATED}) || object.spec == oldObject.spec || {is_one_of(KUEUE)}",
                message="pods are immutable; delete the pod, and its run creates another",
            ),
            Rule(
                holds=f"!({_UPDATED}) || {same_labels} || {is_one_of(RUN_CONTROLLERS)}",
                message="labels of pods are immutable, because controllers select pods by them; use an annotation",
            ),
            _ownership((*OWNERS, *GARBAGE_COLLECTOR)),
        ],
    )


def run_status_immutable() -> Manifest:
    """Let only controllers write a run's status: a run that is marked finished releases its quota."""
    return policy(
        "status",
        matches=pod_templates.runs("status", operations=("UPDATE",)),
        rules=[
            Rule(
                holds=f"object.status == oldObject.status || {is_one_of(RUN_CONTROLLERS)}",
                message="only controllers may write a run's status; to end the run, delete it",
            )
        ],
    )


def forbid_orphan_deletion() -> Manifest:
    """Forbid orphaning a run's pods, which would continue while their quota is reassigned."""
    return policy(
        "deletion",
        matches=pod_templates.runs(operations=("DELETE",)),
        # The API's default for Jobs is to orphan their pods.
        variables={
            "unsaid": (
                "dyn(request.options).?orphanDependents.orValue("
                "request.resource.group == 'batch') ? 'Orphan' : 'Background'"
            )
        },
        rules=[
            Rule(
                holds=(
                    "dyn(request.options).?propagationPolicy.orValue(variables.unsaid) != 'Orphan'"
                ),
                message="a run's pods must be deleted with it; set propagationPolicy: Background",
            )
        ],
    )
