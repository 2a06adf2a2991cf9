"""Require explicit resource requests of countable types."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.domain.scheduler import MAX_GRACE_S
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, resources, text, texts
from infra.kubernetes.objects import Manifest

_COUNTED = ("cpu", "memory", "ephemeral-storage", naming.GPU, naming.EFA)
_COUNTED_KINDS: Final = ("hugepages-", naming.RDMA_RESOURCES)


def _is_requested(resource: str) -> str:
    """Return CEL: container `c` requests some of it.

    A limit alone is not enough: Kueue books the LimitRange's default request for it, or never admits the run if
    that exceeds the limit, while the pod gets the limit as its request.
    """
    asked = f"c.?resources.?requests.?{resource}.orValue('0')"
    return f"quantity(string({asked})).isGreaterThan(quantity('0'))"


def _each(test: str) -> str:
    return f"variables.containers.all(cs, cs.all(c, {test}))"


def require_resource_requests() -> Manifest:
    """Require requests of countable resources on every container, and forbid other ways to devices."""
    beginnings = " || ".join(f"r.startsWith({text(one)})" for one in _COUNTED_KINDS)
    counted = f"r in {texts(_COUNTED)} || {beginnings}"
    return policy(
        "requests",
        matches=pod_templates.everything_with_pods(),
        conditions=pod_templates.NEW_PODS,
        variables=pod_templates.PODS,
        rules=[
            Rule(
                holds=_each(f"{_is_requested('cpu')} && {_is_requested('memory')}"),
                message=(
                    "a container has no request for cpu or memory; all must, including init containers, and a "
                    "limit is not enough; add resources.requests"
                ),
            ),
            Rule(
                holds=_each(
                    " && ".join(
                        f"c.?resources.?{part}.orValue({{}}).all(r, {counted})"
                        for part in ("requests", "limits")
                    )
                ),
                message=(
                    "a requested resource is not counted by queues; "
                    f"valid are {', '.join(_COUNTED)}; remove it"
                ),
            ),
            Rule(
                holds=(
                    "variables.pods.all(p, p.spec.?terminationGracePeriodSeconds.orValue(30) "
                    f"<= {MAX_GRACE_S})"
                ),
                message=(
                    f"terminationGracePeriodSeconds must be at most {MAX_GRACE_S}, so that evicted pods release "
                    "their node; lower it"
                ),
            ),
            Rule(
                holds="variables.pods.all(p, p.spec.?resourceClaims.orValue([]).size() == 0)",
                message=(
                    "resource claims are not allowed, because queues do not count them; "
                    "request nvidia.com/gpu instead"
                ),
            ),
        ],
    )


def forbid_resource_claims() -> Manifest:
    """Forbid resource claims, which neither queues nor quotas count."""
    return policy(
        "claims",
        matches=[resources("resource.k8s.io", "resourceclaims", "resourceclaimtemplates")],
        rules=[
            Rule(
                holds="has(object.metadata.deletionTimestamp)",
                message=(
                    "resource claims are not allowed, because queues do not count them; "
                    "request nvidia.com/gpu instead"
                ),
            )
        ],
    )
