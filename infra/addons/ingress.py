"""How people outside of the cluster reach a web page in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Ingress:
    """An Ingress with TLS."""

    class_name: str
    tls_secret: str
    annotations: Mapping[str, str] = field(default_factory=dict)
