"""Metrics, alerts, costs and logs tell teams apart by a label of pods: it says the truth."""

from __future__ import annotations

from infra.domain import naming
from infra.kubernetes.objects import Manifest
from infra.tenancy.admission import pods
from infra.tenancy.admission.policy import Rule, policy, text


def of_the_own_team() -> Manifest:
    """The policy. What comes later than creation is refused elsewhere: changes.py."""
    said = f"p.?metadata.?labels[?{text(naming.TEAM)}].orValue(variables.team)"
    return policy(
        "labels",
        matches=pods.everything_with_pods(),
        conditions=pods.NEW_PODS,
        variables={**pods.TEAM, "pods": pods.PODS["pods"]},
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
