"""The run page in the cluster, behind a proxy that signs users in."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from infra.sections.grafana import Https
from infra.sections.ingress import IngressConfig
from infra.sections.types import DnsLabel, Image, Str, StrictModel, matching

_CLAIM: Final = matching("claim", r"[\w:./-]{1,200}", "the name of a claim, such as email")
_TEXT: Final = matching("text", r"[\x21-\x7e]{1,300}", "printable characters without spaces")
_PREFIX: Final = matching("prefix", r"(?!system:)[\x21-\x7e]{0,100}", "a prefix such as oidc:")


class RunPageConfig(StrictModel):
    """The run page in the cluster, behind oauth2-proxy."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of ops/image/Dockerfile, by digest."""
    proxy_image: Image = Field(description="quay.io/oauth2-proxy/oauth2-proxy by digest, or a copy")
    """Image of oauth2-proxy, by digest."""
    url: Https = Field(description="the URL under which people open the page")
    """URL under which people open the page."""
    issuer: Https = Field(description="the URL of an OIDC issuer")
    """OIDC issuer that signs users in."""
    client_id: Annotated[Str, AfterValidator(_TEXT)] = Field(description="the OIDC client's id")
    """OIDC client; redirects to URL/oauth2/callback."""
    secret_name: DnsLabel = Field(
        description="the name of a Secret of the namespace trainyard-page"
    )
    """Secret in `trainyard-page` with the keys client-secret and cookie-secret, which you create."""
    username_claim: Annotated[Str, AfterValidator(_CLAIM)] = "email"
    """Claim that is the user's name in RBAC."""
    groups_claim: Annotated[Str, AfterValidator(_CLAIM)] = "groups"
    """Claim with the user's groups in RBAC."""
    username_prefix: Annotated[Str, AfterValidator(_PREFIX)] = ""
    """The API server's prefix of user names. Default: none."""
    groups_prefix: Annotated[Str, AfterValidator(_PREFIX)] = ""
    """The API server's prefix of group names. Default: none."""
    ingress: IngressConfig | None = None
    """Ingress of the Service `run-page`. Default: one of your own."""
