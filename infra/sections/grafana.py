"""Grafana: its URL, its administrator and the ways in."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from infra.sections.ingress import IngressConfig
from infra.sections.types import DnsLabel, Str, StrictModel, matching

_HTTPS: Final = r"https://[A-Za-z0-9.-]+(:[0-9]+)?(/[\w./-]*)?"


Https = Annotated[
    Str, AfterValidator(matching("url", _HTTPS, "a URL such as https://grafana.example.com"))
]


_WORD: Final = r"[\w.:@/-]{1,200}"
Word = Annotated[Str, AfterValidator(matching("word", _WORD, "letters, digits and .:@/_-"))]
Claim = Annotated[
    Str, AfterValidator(matching("claim", r"[A-Za-z_]\w{0,99}", "the name of a claim, as groups"))
]


class SignInConfig(StrictModel):
    """OpenID Connect for people of some groups, in place of the administrator's login form."""

    auth_url: Https = Field(description="the issuer's authorization_endpoint")
    """The issuer's authorization_endpoint (/.well-known/openid-configuration)."""
    token_url: Https = Field(description="the issuer's token_endpoint")
    """Its token_endpoint."""
    userinfo_url: Https = Field(description="the issuer's userinfo_endpoint")
    """Its userinfo_endpoint."""
    client_id: Word = Field(description="the OIDC client's id")
    """OIDC client; redirects to URL/login/generic_oauth."""
    secret_name: DnsLabel = Field(description="the name of a Secret of the namespace monitoring")
    """Secret in `monitoring` with the key client-secret, which you create."""
    groups: Annotated[tuple[Word, ...], Field(min_length=1, description="at least one group")]
    """Groups that may sign in and see every dashboard."""
    admin_groups: tuple[Word, ...] = ()
    """Groups whose members administer Grafana. Default: none."""
    groups_claim: Claim = "groups"
    """Claim with a user's groups."""


class GrafanaConfig(StrictModel):
    """The Grafana that links point to."""

    url: Https = Field(description="the URL under which people reach Grafana")
    """External URL, for links."""
    admin_secret_name: DnsLabel | None = None
    """Secret in `monitoring` with the keys admin-user and admin-password, which you create; required where the
    stack installs Grafana."""
    sign_in: SignInConfig | None = None
    """OpenID Connect. Default: the administrator only."""
    ingress: IngressConfig | None = None
    """Ingress of `url`; requires `signIn`. Default: port forwarding."""
