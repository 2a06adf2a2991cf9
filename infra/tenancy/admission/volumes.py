"""A team uses only the storage that the platform created for it.

A pod or JobSet can contain a claim template: a controller then creates the claim, without regard to the
deployer's permissions and without a quota.
"""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, resources, texts
from infra.kubernetes.controller_accounts import EPHEMERAL_VOLUMES, OWNERS, is_one_of
from infra.kubernetes.objects import Manifest

_FORBIDDEN_KINDS: Final = ("csi", "ephemeral")
"""Kinds of volumes that Pod Security allows and that create storage or call a driver."""

_TEMPLATES: Final = ("volumeClaimPolicies", "volumeClaimTemplates")
"""Fields with claims of a JobSet and a StatefulSet."""

_CLAIM: Final = "request.kind.kind == 'PersistentVolumeClaim'"
_REMEDY: Final = (
    f"mount the claims {naming.CHECKPOINTS_CLAIM} and {naming.DATASETS_CLAIM}, or an emptyDir"
)


def require_platform_volumes() -> Manifest:
    """Forbid volumes and claims that create storage."""
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
                    f".all(v, v.all(k, !(k in {texts(_FORBIDDEN_KINDS)}))))"
                ),
                message=f"volumes of type {' and '.join(_FORBIDDEN_KINDS)} are not allowed; {_REMEDY}",
            ),
            Rule(
                holds=(
                    f"{_CLAIM} || {texts(_TEMPLATES)}.all(k, "
                    "!(k in dyn(object).spec) || dyn(object).spec[k].size() == 0)"
                ),
                message=f"claim templates are not allowed; {_REMEDY}; remove {' and '.join(_TEMPLATES)}",
            ),
            Rule(
                holds=f"!({_CLAIM}) || !({is_one_of((*OWNERS, *EPHEMERAL_VOLUMES))})",
                message=f"controllers may not create claims; only the platform does; {_REMEDY}",
            ),
        ],
    )
