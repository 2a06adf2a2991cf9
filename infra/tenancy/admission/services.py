"""Services let pods of a run find each other; they must not intercept other traffic."""

from __future__ import annotations

from infra.kubernetes.admission_policy import Rule, policy, resources
from infra.kubernetes.objects import Manifest


def forbid_external_services() -> Manifest:
    """Forbid external addresses: with `externalIPs` a Service receives the traffic that all nodes send to that
    address (CVE-2020-8554), such as a bucket's."""
    return policy(
        "services",
        matches=[resources("", "services")],
        rules=[
            Rule(
                holds="object.spec.?externalIPs.orValue([]).size() == 0",
                message="externalIPs are not allowed; Services must be internal; use a headless Service",
            ),
            Rule(
                holds="object.spec.?type.orValue('ClusterIP') == 'ClusterIP'",
                message=(
                    "this Service is reachable from outside; "
                    "it must be of type ClusterIP; set type: ClusterIP"
                ),
            ),
        ],
    )
