"""What members of teams may not choose for a run: a priority above their tier, files, the platform's variables.

A run's ConfigMaps hold the code that its pods start, so they are immutable. Of two variables with one name the
kubelet takes the last, so a second one would silently replace the platform's. Operators add variables of their own
to the pods of a run, whose template was checked before. The audit log records who launched which run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, labels_of, policy, resources, text, texts
from infra.kubernetes.controller_accounts import OWNERS, is_one_of
from infra.kubernetes.objects import Manifest

_ID = pod_templates.label(naming.RUN_ID)
_IMAGES = "dyn(variables.containers).map(cs, cs.map(c, c.?image.orValue('')).join(',')).join(';')"

_NOTES = {
    "run-id": f"{_ID} == '' ? object.metadata.?name.orValue('unnamed') : {_ID}",
    "config": f"{_ID} == '' ? 'none' : 'configmaps/' + object.metadata.namespace + '/' + {_ID}",
    "team": "variables.team",
    "queue": pod_templates.label(naming.QUEUE_NAME),
    "images": _IMAGES,
}


def team_label_matches() -> Manifest:
    """Require the team label to match. Later changes are rejected by immutability.py."""
    said = f"p.?metadata.?labels[?{text(naming.TEAM)}].orValue(variables.team)"
    return policy(
        "labels",
        matches=pod_templates.everything_with_pods(),
        conditions=pod_templates.NEW_PODS,
        variables={**pod_templates.TEAM, "pods": pod_templates.PODS["pods"]},
        rules=[
            Rule(
                holds=f"([dyn(object)] + variables.pods).all(p, {said} == variables.team)",
                message=(
                    "the team label is another team's; it must match the namespace, because costs and alerts "
                    f"use it; remove {naming.TEAM}"
                ),
            )
        ],
    )


def audit_launches() -> Manifest:
    """Annotate the creation of runs in the API server's audit log; it rejects nothing.

    The configuration is the ConfigMap of the run's name; the last part of the run id is its hash.
    """
    return policy(
        "audit",
        matches=pod_templates.runs(operations=("CREATE",)),
        variables={**pod_templates.TEAM, **pod_templates.PODS},
        audited={key: f"string({value})" for key, value in _NOTES.items()},
    )


def allowed(priorities: Mapping[str, int], ceilings: Mapping[str, str]) -> dict[str, list[str]]:
    """Return by tier the classes whose value is at most that of the tier's own class."""
    return {
        tier: sorted(name for name, value in priorities.items() if value <= priorities[own])
        for tier, own in ceilings.items()
    }


def priority_within_tier(priorities: Mapping[str, int], ceilings: Mapping[str, str]) -> Manifest:
    """Limit PriorityClasses and Kueue's classes alike; `ceilings`: the highest class of each tier."""
    lists = [f"{text(t)}: {texts(found)}" for t, found in allowed(priorities, ceilings).items()]
    values = [f"{text(tier)}: {priorities[own]}" for tier, own in ceilings.items()]
    legacy = "dyn(object).spec.?runPolicy.?schedulingPolicy.?priorityClass.orValue('')"
    return policy(
        "priority",
        matches=pod_templates.everything_with_pods(),
        conditions={
            # Labels may change without the spec.
            "may-go-first": (
                f"{pod_templates.NEW_PODS['makes-pods']} || "
                f"{pod_templates.label(naming.WORKLOAD_PRIORITY)} != "
                f"{pod_templates.label(naming.WORKLOAD_PRIORITY, 'oldObject')}"
            )
        },
        variables={
            **pod_templates.TEAM,
            **pod_templates.PODS,
            "allowed": f"['']+{{{', '.join(lists)}}}[?variables.tier].orValue([])",
            "ceiling": f"{{{', '.join(values)}}}[?variables.tier].orValue(0)",
        },
        rules=[
            Rule(
                holds=(
                    "variables.pods.all(p, p.spec.?priorityClassName.orValue('') "
                    "in variables.allowed)"
                ),
                message=(
                    "priorityClassName is above the team's tier; lower or equal classes are valid; "
                    "remove it, and set priority in the run file"
                ),
            ),
            Rule(
                holds=(
                    "request.kind.kind != 'Pod' || "
                    "dyn(object).spec.?priority.orValue(0) <= variables.ceiling"
                ),
                message="priority is above the team's tier; the class sets it; remove priority",
            ),
            Rule(
                holds=(
                    f"{pod_templates.label(naming.WORKLOAD_PRIORITY)} in variables.allowed && "
                    f"{legacy} in variables.allowed"
                ),
                message=(
                    f"{naming.WORKLOAD_PRIORITY} is above the team's tier; lower or equal classes are valid; "
                    "remove it, and set priority in the run file"
                ),
            ),
        ],
    )


_PRELOADS: Final = ("LD_PRELOAD", "LD_AUDIT")
"""Variables that load code into every process of a container, the launcher included."""


def protect_environment() -> Manifest:
    """Forbid variables that replace others of their container, or load code before the launcher."""
    each = "variables.containers.all(cs, cs.all(c, c.?env.orValue([])"
    return policy(
        "environment",
        matches=pod_templates.everything_with_pods(),
        conditions=pod_templates.NEW_PODS,
        variables=pod_templates.PODS,
        rules=[
            Rule(
                holds=(
                    f"{is_one_of(OWNERS)} || {each}.all(v, c.env.exists_one(w, w.name == v.name))))"
                ),
                message=(
                    "a variable of a container is set twice; each must be set once, because the last one "
                    "wins; remove one"
                ),
            ),
            Rule(
                holds=f"{each}.all(v, !(v.name in {texts(_PRELOADS)}))))",
                message=(
                    f"{' and '.join(_PRELOADS)} are not allowed, because they load code into the run's "
                    "launcher; load the library in the program"
                ),
            ),
        ],
    )


def run_files_immutable() -> Manifest:
    """Require that ConfigMaps of a run, which hold its record and its code, are immutable."""
    return policy(
        "run-files",
        matches=[resources("", "configmaps")],
        rules=[
            Rule(
                holds=(
                    f"!({text(naming.RUN_ID)} in {labels_of('object')}) || "
                    "object.?immutable.orValue(false)"
                ),
                message=(
                    "a run's ConfigMap must be immutable, because its pods start what it contains; "
                    "set immutable: true"
                ),
            )
        ],
    )
