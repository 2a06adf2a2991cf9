"""The pod team label, by which metrics, alerts, costs and logs are attributed, matches the namespace."""

from __future__ import annotations

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, text
from infra.kubernetes.objects import Manifest


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
                    "this is another team's label, and costs and alerts go by it; remove "
                    f"{naming.TEAM}"
                ),
            )
        ],
    )
