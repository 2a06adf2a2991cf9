"""What runs is named by its digest and comes from where the stack allows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infra.kubernetes.objects import Manifest
from infra.tenancy.admission import pods
from infra.tenancy.admission.policy import Rule, policy, text

_DIGEST = "@sha256:[0-9a-f]{64}"


def pattern(registries: Sequence[str]) -> str:
    """RE2 for images by digest in one of these registries or repositories, and in what is below them.

    Without any registry nothing matches.
    """
    allowed = "|".join(re.escape(registry) for registry in registries)
    # A tag is let through before the digest, which alone decides.
    return f"^({allowed})(/[^@]*)?(:[^/@]+)?{_DIGEST}$" if registries else r"^\b$"


def by_digest(registries: Sequence[str]) -> Manifest:
    """Images of containers and of volumes."""
    good = f".matches({text(pattern(registries))})"
    allowed = ", ".join(registries) or "none yet: name them as registries in the stack file"
    return policy(
        "images",
        matches=pods.everything_with_pods(),
        conditions=pods.NEW_PODS,
        variables=pods.PODS,
        rules=[
            Rule(
                holds=f"variables.containers.all(cs, cs.all(c, c.?image.orValue(''){good}))",
                message=f"images are given as REPOSITORY@sha256:DIGEST; allowed are {allowed}",
            ),
            Rule(
                holds=(
                    "variables.pods.all(p, p.spec.?volumes.orValue([])"
                    f".all(v, !has(v.image) || v.image.?reference.orValue(''){good}))"
                ),
                message=f"volumes of images are given by digest, too; allowed are {allowed}",
            ),
        ],
    )
