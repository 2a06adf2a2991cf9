"""Whom network policies name, wherever they are written."""

from __future__ import annotations

from typing import Any, Final

_DNS_PORT: Final = 53


def in_namespace(name: str) -> dict[str, Any]:
    """A selector of the namespace of this name, by the label that Kubernetes itself gives it."""
    return {"matchLabels": {"kubernetes.io/metadata.name": name}}


def name_resolution() -> dict[str, Any]:
    """A rule of egress to the cluster's own DNS servers."""
    servers = {
        "namespaceSelector": in_namespace("kube-system"),
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    ports = [{"protocol": protocol, "port": _DNS_PORT} for protocol in ("UDP", "TCP")]
    return {"to": [servers], "ports": ports}
