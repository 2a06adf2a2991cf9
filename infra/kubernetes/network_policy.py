"""Selectors and rules that network policies share."""

from __future__ import annotations

from typing import Any, Final

_DNS_PORT: Final = 53


def in_namespace(name: str) -> dict[str, Any]:
    return {"matchLabels": {"kubernetes.io/metadata.name": name}}


def name_resolution() -> dict[str, Any]:
    """Return an egress rule to the cluster's DNS servers."""
    servers = {
        "namespaceSelector": in_namespace("kube-system"),
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    ports = [{"protocol": protocol, "port": _DNS_PORT} for protocol in ("UDP", "TCP")]
    return {"to": [servers], "ports": ports}
