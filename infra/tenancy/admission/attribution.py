"""Attribution: pod team labels match the namespace, and the audit log records who launched which run."""

from __future__ import annotations

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, text
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
