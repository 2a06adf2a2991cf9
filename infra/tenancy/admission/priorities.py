"""Runs may not use a priority above their tier."""

from __future__ import annotations

from collections.abc import Mapping

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, text, texts
from infra.kubernetes.objects import Manifest


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
