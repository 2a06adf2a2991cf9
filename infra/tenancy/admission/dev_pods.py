"""Dev pods: what may be one, and who may open a shell in it. See docs/adr/06-tenancy.md.

A dev pod is the only pod of a Job that its owner created. The API server's name of that user is recorded in an
annotation, which the first policy compares with the request, and the second with whoever connects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.domain import naming
from infra.domain.dev_pods import MAX_HOURS, lowest
from infra.domain.launcher_support import JOB
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import (
    Rule,
    annotations_of,
    labels_of,
    policy,
    resources,
    text,
)
from infra.kubernetes.controller_accounts import created_by
from infra.kubernetes.objects import Manifest

_JOB_CONTROLLER: Final = dict.fromkeys(JOB.controllers, (JOB.group, JOB.kind))
_KEY: Final = text(naming.DEV)
_NAME: Final = (
    "object.metadata.?name.orValue('') != '' ? object.metadata.name : "
    "object.metadata.?generateName.orValue('')"
)
_IS_JOB: Final = "request.kind.kind == 'Job'"
_REMEDY: Final = "use: trainyard dev start"


def _owner(of: str) -> str:
    return f"{annotations_of(of)}[?{text(naming.LAUNCHED_BY)}].orValue('')"


def _identity() -> list[Rule]:
    owners = (
        f"variables.pods.all(p, p.?metadata.?annotations[?{text(naming.LAUNCHED_BY)}].orValue('') "
        "== variables.owner)"
    )
    return [
        Rule(
            holds=(
                f"variables.name.startsWith({text(naming.DEV_PREFIX)}) == variables.dev && "
                f"(!variables.dev || {pod_templates.label(naming.DEV)} == 'true') && "
                f"variables.pods.all(p, ({_KEY} in p.?metadata.?labels.orValue({{}})) == variables.dev)"
            ),
            message=(
                f"the label {naming.DEV}: true and names that begin with {naming.DEV_PREFIX} are those of dev "
                f"pods, which have both; choose another name and remove the label, or {_REMEDY}"
            ),
        ),
        Rule(
            holds=(
                f"!variables.dev || {_IS_JOB} || "
                f"(request.kind.kind == 'Pod' && (request.operation == 'UPDATE' || {created_by(_JOB_CONTROLLER)}))"
            ),
            message=f"a dev pod must be the pod of a Job; {_REMEDY}",
        ),
        Rule(
            holds=(
                "!variables.dev || variables.pods.all(p, p.spec.?serviceAccountName.orValue('') == "
                f"{text(naming.SERVICE_ACCOUNT)} && "
                "!p.spec.?automountServiceAccountToken.orValue(true))"
            ),
            message=(
                f"a dev pod must use the service account {naming.SERVICE_ACCOUNT} without its token; {_REMEDY}"
            ),
        ),
        Rule(
            holds=(
                f"!variables.dev || !({_IS_JOB}) || request.operation != 'CREATE' || "
                f"(variables.owner == request.userInfo.username && {owners})"
            ),
            message=(
                f"the annotation {naming.LAUNCHED_BY} of a dev pod must be the name of the user who creates it, "
                f"on the Job and its pod template; {_REMEDY}"
            ),
        ),
        Rule(
            holds=(
                "request.operation != 'UPDATE' || "
                f"variables.owner == {_owner('oldObject')} || !variables.dev"
            ),
            message=f"the owner of a dev pod does not change; leave the annotation {naming.LAUNCHED_BY}",
        ),
    ]


def _limits(priority: str) -> list[Rule]:
    spec = "dyn(object).spec"
    queue = pod_templates.label(naming.QUEUE_NAME)
    return [
        Rule(
            holds=(
                f"!variables.dev || !({_IS_JOB}) || ({spec}.?parallelism.orValue(1) == 1 && "
                f"{spec}.?completions.orValue(1) == 1 && {spec}.?backoffLimit.orValue(6) == 0)"
            ),
            message=(
                "a dev pod is a single pod that is not started again; set parallelism: 1, completions: 1 and "
                f"backoffLimit: 0, or {_REMEDY}"
            ),
        ),
        Rule(
            holds=(
                f"!variables.dev || !({_IS_JOB}) || "
                f"({spec}.?activeDeadlineSeconds.orValue(0) > 0 && "
                f"{spec}.activeDeadlineSeconds <= {MAX_HOURS * 3600} && ({queue} == '' || "
                f"{pod_templates.label(naming.MAX_EXEC_SECONDS)} == "
                f"string({spec}.activeDeadlineSeconds)))"
            ),
            message=(
                f"a dev pod ends after at most {MAX_HOURS} hours; set activeDeadlineSeconds, and "
                f"{naming.MAX_EXEC_SECONDS} to the same, or use: trainyard dev start --hours H"
            ),
        ),
        Rule(
            holds=(
                f"!variables.dev || !({_IS_JOB}) || request.operation != 'CREATE' || variables.pods.all(p, "
                f"p.spec.?activeDeadlineSeconds.orValue(0) == {spec}.?activeDeadlineSeconds.orValue(0))"
            ),
            message=(
                "the pod of a dev pod must have the activeDeadlineSeconds of its Job, by which the team's quota "
                f"counts it; set it in the template, or {_REMEDY}"
            ),
        ),
        Rule(
            holds=(
                f"!variables.dev || request.operation != 'CREATE' || "
                f"(({queue} == '' || {pod_templates.label(naming.WORKLOAD_PRIORITY)} == {text(priority)} || "
                f"!({_IS_JOB})) && variables.pods.all(p, p.spec.?priorityClassName.orValue('') == "
                f"{text(priority)}))"
            ),
            message=(
                f"dev pods have the priority {priority}; set it as priorityClassName and as "
                f"{naming.WORKLOAD_PRIORITY}, or {_REMEDY}"
            ),
        ),
    ]


def dev_pods_are_owned(priorities: Mapping[str, int]) -> Manifest:
    """Require the shape of a dev pod, its true owner, and that nothing else looks like one."""
    changed = (
        f"{labels_of('object')} != {labels_of('oldObject')} || "
        f"{_owner('object')} != {_owner('oldObject')} || {pod_templates.NEW_PODS['makes-pods']}"
    )
    return policy(
        "dev-pods",
        matches=[
            *pod_templates.everything_with_pods(),
            # Annotations of a pod can be changed through each of these.
            resources("", "pods", "pods/status", "pods/resize", operations=("UPDATE",)),
        ],
        conditions={"may-be-a-dev-pod": f"request.operation == 'CREATE' || {changed}"},
        variables={
            **pod_templates.PODS,
            "name": _NAME,
            "dev": f"{_KEY} in {labels_of('object')}",
            "owner": _owner("object"),
        },
        rules=[*_identity(), *_limits(lowest(priorities))],
    )


def shells_of_owners() -> Manifest:
    """Let users connect to their own dev pods only; nobody attaches to a process.

    A request to connect does not contain the pod: the pods of the namespace are the policy's parameters. It is
    evaluated for each of them, and each must admit. A pod that the API server has not yet seen in its watch is
    rejected by the name, unless it is a dev pod.
    """
    own = (
        f"params.metadata.?labels[?{_KEY}].orValue('') == 'true' && "
        f"{_owner('params')} == request.userInfo.username"
    )
    return policy(
        "dev-shells",
        matches=[
            resources("", "pods/exec", "pods/attach", "pods/portforward", operations=("CONNECT",))
        ],
        rules=[
            Rule(
                holds="request.?subResource.orValue('') != 'attach'",
                message="attaching to a container is not allowed; use: trainyard dev shell",
            ),
            Rule(
                holds=f"request.name.startsWith({text(naming.DEV_PREFIX)})",
                message=(
                    "exec and port-forward are allowed in dev pods only; read the pod's log, or start a dev "
                    "pod: trainyard dev start"
                ),
            ),
            Rule(
                holds=f"params.metadata.name != request.name || ({own})",
                message=(
                    "this dev pod is another user's; exec and port-forward are allowed in your own; "
                    "trainyard dev list shows it"
                ),
            ),
        ],
        params=("v1", "Pod"),
    )
