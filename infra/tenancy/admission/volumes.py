"""A team's storage is what the platform made for it: nothing that a team deploys makes more.

A pod can bring a claim with it, and so can a JobSet: their controllers make it, so that no role of who deployed
them is asked, and no quota counts it.
"""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, resources, texts
from infra.kubernetes.controller_accounts import EPHEMERAL_VOLUMES, OWNERS, is_one_of
from infra.kubernetes.objects import Manifest

_CLAIMING: Final = ("csi", "ephemeral")
"""Kinds of volumes that Pod Security lets through, and that make storage or ask a driver for anything."""

_TEMPLATES: Final = ("volumeClaimPolicies", "volumeClaimTemplates")
"""Where a JobSet and a StatefulSet have claims."""

_CLAIM: Final = "request.kind.kind == 'PersistentVolumeClaim'"
_REMEDY: Final = (
    f"mount the claims {naming.CHECKPOINTS_CLAIM} and {naming.DATASETS_CLAIM}, or an emptyDir"
)


def require_platform_volumes() -> Manifest:
    """The policy."""
    return policy(
        "volumes",
        matches=[
            *pod_templates.everything_with_pods(),
            resources("", "persistentvolumeclaims", operations=("CREATE",)),
        ],
        conditions=pod_templates.NEW_PODS,
        variables=pod_templates.PODS,
        rules=[
            Rule(
                holds=(
                    f"{_CLAIM} || variables.pods.all(p, p.spec.?volumes.orValue([])"
                    f".all(v, v.all(k, !(k in {texts(_CLAIMING)}))))"
                ),
                message=f"no volume is made for a pod ({', '.join(_CLAIMING)}); {_REMEDY}",
            ),
            Rule(
                holds=(
                    f"{_CLAIM} || {texts(_TEMPLATES)}.all(k, "
                    "!(k in dyn(object).spec) || dyn(object).spec[k].size() == 0)"
                ),
                message=f"nothing brings claims of its own; remove {' and '.join(_TEMPLATES)}",
            ),
            Rule(
                holds=f"!({_CLAIM}) || !({is_one_of((*OWNERS, *EPHEMERAL_VOLUMES))})",
                message=f"claims are the platform's, and no controller makes one; {_REMEDY}",
            ),
        ],
    )
