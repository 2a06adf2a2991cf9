"""An Ingress of a page in the cluster."""

from __future__ import annotations

from pydantic import Field

from infra.sections.types import DnsLabel, Str, StrictModel


class IngressConfig(StrictModel):
    """An Ingress of the URL's host, with TLS."""

    class_name: DnsLabel = Field(description="the name of an IngressClass")
    """IngressClass."""
    tls_secret_name: DnsLabel = Field(description="the name of a Secret with a certificate")
    """Secret with the host's certificate, in the page's namespace."""
    annotations: dict[Str, Str] = Field(default={})
    """Annotations for its controller, such as for an internal load balancer."""
