"""Metrics, alerts, costs and logs tell teams apart by a label of pods: it says the truth."""

from __future__ import annotations

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, text
from infra.kubernetes.objects import Manifest


def team_label_matches() -> Manifest:
    """The policy. What comes later than creation is refused elsewhere: changes.py."""
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
                    "this is another team's label, and costs and alerts go by it; remove "
                    f"{naming.TEAM}"
                ),
            )
        ],
    )
