"""An Ingress of a page in the cluster."""

from __future__ import annotations

from pydantic import Field

from infra.sections.types import DnsLabel, Str, StrictModel


class IngressConfig(StrictModel):
    """An Ingress of the URL's host, with TLS."""

    class_name: DnsLabel = Field(description="the name of an IngressClass")
    """IngressClass whose controller serves it."""
    tls_secret_name: DnsLabel = Field(description="the name of a Secret with a certificate")
    """Secret with the certificate of the host, in the namespace of the page."""
    annotations: dict[Str, Str] = Field(default={})
    """Annotations that the controller reads, such as the one that keeps a load balancer internal."""
