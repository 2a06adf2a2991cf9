"""Who may create, change and delete what in a team's namespace, beyond what RBAC can express.

Members of a team may create runs, so what they create carries their name, as the API server knows it; only they,
and those who may stop every run of the team, change or delete it. The exceptions are permissions on a resource
that exists in RBAC only: `deploy` and `stop` on `runs.trainyard.dev`.
"""

from __future__ import annotations

from typing import Any, Final

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import (
    Rule,
    annotations_of,
    labels_of,
    policy,
    resources,
    text,
    texts,
)
from infra.kubernetes.controller_accounts import GARBAGE_COLLECTOR, OWNERS, is_one_of
from infra.kubernetes.objects import Manifest

RUNS: Final = "runs"
"""Resource of RBAC rules in the API group `trainyard.dev`."""
DEPLOY: Final = "deploy"
"""Verb: create runs without one's own name on them, as CI does, and change their objects."""
STOP: Final = "stop"
"""Verb: stop and delete runs of others."""

CONFIG_MAP_BYTES: Final = 1024 * 1024
"""Most of a ConfigMap, which is the API server's own limit."""

_EVERY: Final = ("CREATE", "UPDATE", "DELETE")
_PREPARATIONS: Final = (naming.DATASET_COMPONENT, naming.WEIGHTS_COMPONENT)


def _may(verb: str) -> str:
    return (
        f"authorizer.group({text(naming.DOMAIN)}).resource({text(RUNS)})"
        f".namespace(request.namespace).check({text(verb)}).allowed()"
    )


def _launched_by(of: str) -> str:
    return f"{annotations_of(of)}[?{text(naming.LAUNCHED_BY)}].orValue('')"


PEOPLE: Final = {
    "not-a-controller": (
        f"!({is_one_of((*OWNERS, *GARBAGE_COLLECTOR))}) && "
        "!('system:serviceaccounts:kube-system' in request.userInfo.groups)"
    )
}
"""Match condition: controllers create and delete parts of runs for their owners."""


def without_deployers() -> dict[str, str]:
    """Return the match condition: the user is held to what a submission is."""
    return {"not-deployed": f"!({_may(DEPLOY)})"}


def _objects(*operations: str) -> list[dict[str, Any]]:
    """Return resource rules for everything that a submitted run consists of."""
    return [
        resources("", "configmaps", "services", operations=operations),
        *pod_templates.runs(operations=operations),
        *(dict(rule, operations=list(operations)) for rule in pod_templates.runtimes()),
        resources("scheduling.k8s.io", "podgroups", operations=operations),
        resources("scheduling.volcano.sh", "podgroups", operations=operations),
    ]


def owned_by_their_launcher() -> Manifest:
    """Require the launcher's own name on what members of a team create; only they may change and delete it."""
    user = "request.userInfo.username"
    return policy(
        "ownership",
        matches=_objects(*_EVERY),
        conditions=PEOPLE,
        variables={
            "by": f"request.operation == 'DELETE' ? '' : {_launched_by('object')}",
            "was": f"request.operation == 'CREATE' ? '' : {_launched_by('oldObject')}",
        },
        rules=[
            Rule(
                holds=(
                    f"request.operation != 'CREATE' || variables.by == {user} || "
                    f"(variables.by == '' && {_may(DEPLOY)})"
                ),
                message=(
                    f"the annotation {naming.LAUNCHED_BY} must be your own user name; "
                    "submit the run with trainyard run submit"
                ),
            ),
            Rule(
                holds="request.operation != 'UPDATE' || variables.by == variables.was",
                message=f"who launched a run is a record; leave the annotation {naming.LAUNCHED_BY} as it is",
            ),
            Rule(
                holds=(
                    f"request.operation == 'CREATE' || variables.was == {user} || {_may(STOP)} || "
                    f"{_may(DEPLOY)}"
                ),
                message=(
                    "this was launched by another user; members of a team stop and delete their own runs, "
                    "its leads all of them; ask the user who launched it, or a lead"
                ),
            ),
        ],
    )


def groups_of_run() -> str:
    """Return CEL: as how many groups the object's run is counted; 1 for a run without groups.

    A label that is not a number from 1 to 99 is refused by `submitted_as_rendered`.
    """
    groups = pod_templates.label(naming.GROUPS)
    return f"({groups}.matches('^[1-9][0-9]?$') ? int({groups}) : 1)"


def _named_after_run(run_id: str) -> str:
    """Return CEL: a run is named after its id; each of its groups, by its number below the run's count, too."""
    group = pod_templates.label(naming.GROUP)
    single = f"{group} == '' && {pod_templates.label(naming.GROUPS)} == ''"
    number = f"{group}.matches('^(0|[1-9][0-9]?)$') && int({group}) < {groups_of_run()}"
    return (
        f"(object.metadata.name == {run_id} && {single}) || "
        f"(object.metadata.name == {run_id} + '-g' + {group} && {number})"
    )


def submitted_as_rendered() -> Manifest:
    """Require of what members of a team create that it is a part of a run, under the run's name and account."""
    run_id = pod_templates.label(naming.RUN_ID)
    component = pod_templates.label(naming.COMPONENT)
    return policy(
        "submissions",
        matches=_objects("CREATE"),
        conditions=PEOPLE | without_deployers(),
        variables={
            "run": f"request.kind.kind in {texts(pod_templates.RUN_KINDS)}",
            "pods": (
                "request.kind.kind in ['ConfigMap', 'Service', 'PodGroup'] ? [] : "
                f"({pod_templates.PODS['pods']})"
            ),
            "record": "request.kind.kind == 'ConfigMap' ? dyn(object).?data[?'run.json'].orValue('') : ''",
        },
        rules=[
            Rule(
                holds=(
                    f"({run_id} != '' && (variables.run ? ({_named_after_run(run_id)}) : "
                    f"(object.metadata.name == {run_id} || "
                    f"object.metadata.name.startsWith({run_id} + '-')))) || "
                    f"(request.kind.kind == 'Job' && {component} in {texts(_PREPARATIONS)} && "
                    f"!({text(naming.QUEUE_NAME)} in {labels_of('object')})) || "
                    # The state of a sweep; its runs are submitted one by one.
                    f"(request.kind.kind == 'ConfigMap' && {component} == {text(naming.SWEEP_COMPONENT)} && "
                    f"{pod_templates.label(naming.SWEEP)} != '' && object.metadata.name == "
                    f"{text(naming.SWEEP_PREFIX)} + {pod_templates.label(naming.SWEEP)}) || "
                    # dev_pods.py decides what may have this label.
                    f"(request.kind.kind == 'Job' && {pod_templates.label(naming.DEV)} == 'true')"
                ),
                message=(
                    f"this is not a part of a run: {naming.RUN_ID} must be the run's id, and the run must have "
                    "it as its name, its groups with their number; submit the run with trainyard run submit"
                ),
            ),
            Rule(
                holds=(
                    "variables.pods.all(p, p.spec.?serviceAccountName.orValue('') == "
                    f"{text(naming.SERVICE_ACCOUNT)} && "
                    "!p.spec.?automountServiceAccountToken.orValue(true))"
                ),
                message=(
                    f"a run's pods must use the service account {naming.SERVICE_ACCOUNT} without its token; "
                    "submit the run with trainyard run submit"
                ),
            ),
            Rule(
                holds=(
                    "variables.record == '' || (variables.record.contains('\"launched_by\": \"' + "
                    "request.userInfo.username + '\"') && "
                    "variables.record.split('\"launched_by\":').size() == 2)"
                ),
                message=(
                    "launched_by of run.json must be your own user name; submit the run with trainyard run submit"
                ),
            ),
        ],
    )


def platform_record_protected() -> Manifest:
    """Let only those who may change a team's quota write its Platform record."""
    allowed = (
        "authorizer.group('').resource('resourcequotas').namespace(request.namespace)"
        ".check('update').allowed()"
    )
    name = text(naming.PLATFORM_RECORD)
    # Neither a creation nor the deletion of a collection has a name in its request.
    named = (
        f"(request.operation == 'DELETE' ? oldObject : object).metadata.?name.orValue('') == {name}"
    )
    return policy(
        "platform-record",
        matches=[resources("", "configmaps", operations=_EVERY)],
        conditions={"platform-record": named},
        rules=[
            Rule(
                holds=f"{allowed} || 'system:serviceaccounts:kube-system' in request.userInfo.groups",
                message=(
                    "the Platform record is written by the stack only; it follows from the stack file; "
                    "change that, and deploy the stack"
                ),
            )
        ],
    )
