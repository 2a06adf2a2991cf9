"""Images must be given by digest and come from an allowed registry."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, text
from infra.kubernetes.objects import Manifest

_DIGEST = "@sha256:[0-9a-f]{64}"
_OF_TRAIN_JOB = "dyn(object).spec.?trainer.?image.orValue('')"


def pattern(registries: Sequence[str]) -> str:
    """Return RE2 for images by digest in or below these registries or repositories.

    Without registries nothing matches.
    """
    allowed = "|".join(re.escape(registry) for registry in registries)
    # A tag before the digest is allowed; the digest decides.
    return f"^({allowed})(/[^@]*)?(:[^/@]+)?{_DIGEST}$" if registries else r"^\b$"


def require_image_digests(registries: Sequence[str]) -> Manifest:
    good = f".matches({text(pattern(registries))})"
    allowed = (
        f"one of {', '.join(registries)}"
        if registries
        else "a registry that the stack file lists (none yet)"
    )
    return policy(
        "images",
        matches=pod_templates.everything_with_pods(),
        conditions=pod_templates.NEW_PODS,
        variables=pod_templates.PODS,
        rules=[
            Rule(
                holds=f"variables.containers.all(cs, cs.all(c, c.?image.orValue(''){good}))",
                message=(
                    "an image is not valid; "
                    f"it must be REPOSITORY@sha256:DIGEST in {allowed}; correct it"
                ),
            ),
            Rule(
                # Its pods are in its runtime, and get this image in place of the runtime's.
                holds=(
                    f"request.kind.kind != 'TrainJob' || {_OF_TRAIN_JOB} == '' || "
                    f"{_OF_TRAIN_JOB}{good}"
                ),
                message=(
                    "spec.trainer.image is not valid; "
                    f"it must be REPOSITORY@sha256:DIGEST in {allowed}; correct it"
                ),
            ),
            Rule(
                holds=(
                    "variables.pods.all(p, p.spec.?volumes.orValue([])"
                    f".all(v, !has(v.image) || v.image.?reference.orValue(''){good}))"
                ),
                message=(
                    "an image volume is not valid; "
                    f"its reference must be REPOSITORY@sha256:DIGEST in {allowed}; correct it"
                ),
            ),
        ],
    )
