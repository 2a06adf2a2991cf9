"""Which traffic NetworkPolicies admit, as Kubernetes defines it; only what the platform's policies use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Policy = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """The other end: a pod, or what no selector matches, such as the API server."""

    namespace: str = ""
    """Empty: not a pod."""
    labels: Mapping[str, str] = field(default_factory=dict)


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, "the model knows no expressions"
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _names(peer: Peer, named: Mapping[str, Any], home: str) -> bool:
    """Whether one entry of `from` or `to` names the peer."""
    if not peer.namespace or "ipBlock" in named:
        return False
    place = {"kubernetes.io/metadata.name": peer.namespace}
    if "namespaceSelector" in named:
        inside = _selects(named["namespaceSelector"], place)
    else:
        inside = peer.namespace == home
    return inside and _selects(named.get("podSelector", {}), peer.labels)


def admits(
    policies: Iterable[Policy],
    pod: Peer,
    peer: Peer,
    port: int,
    direction: str,
    protocol: str = "TCP",
) -> bool:
    """Whether the policies admit traffic of a pod: `Ingress` from the peer to its port, or `Egress`."""
    key, ends = direction.lower(), "from" if direction == "Ingress" else "to"
    effective = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == pod.namespace
        and direction in policy["spec"]["policyTypes"]
        and _selects(policy["spec"]["podSelector"], pod.labels)
    ]
    if not effective:
        return True
    return any(
        (not rule.get(ends) or any(_names(peer, one, pod.namespace) for one in rule[ends]))
        and any(
            one["protocol"] == protocol and one["port"] == port
            for one in rule.get("ports") or [{"protocol": protocol, "port": port}]
        )
        for policy in effective
        for rule in policy["spec"].get(key, [])
    )
