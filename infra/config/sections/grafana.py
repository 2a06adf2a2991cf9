"""Grafana: its URL, its administrator and the ways in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from infra.addons.kube_prometheus_stack import NAME, Grafana, SignIn
from infra.config.errors import ConfigIssue
from infra.config.partial import Check, PartialStack
from infra.config.sections.ingress import IngressConfig
from infra.config.types import DnsLabel, Str, StrictModel, matching

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
    """The issuer's authorization_endpoint, as its /.well-known/openid-configuration names it."""
    token_url: Https = Field(description="the issuer's token_endpoint")
    """Its token_endpoint."""
    userinfo_url: Https = Field(description="the issuer's userinfo_endpoint")
    """Its userinfo_endpoint."""
    client_id: Word = Field(description="the OIDC client's id")
    """Client of Grafana; it redirects to URL/login/generic_oauth."""
    secret_name: DnsLabel = Field(description="the name of a Secret of the namespace monitoring")
    """A Secret of the namespace `monitoring` with the key client-secret, which the stack does not create."""
    groups: Annotated[tuple[Word, ...], Field(min_length=1, description="at least one group")]
    """Groups whose members may sign in; they see every dashboard and change nothing."""
    admin_groups: tuple[Word, ...] = ()
    """Groups whose members administer Grafana. Default: none."""
    groups_claim: Claim = "groups"
    """Claim with a user's groups."""


class GrafanaConfig(StrictModel):
    """The Grafana that links point to."""

    url: Https = Field(description="the URL under which people reach Grafana")
    """External URL of Grafana; links of runs and alerts use it."""
    admin_secret_name: DnsLabel | None = None
    """A Secret of the namespace `monitoring` with the keys admin-user and admin-password, which the
    stack does not create. Required where the stack installs Grafana."""
    sign_in: SignInConfig | None = None
    """OpenID Connect. Default: the administrator only."""
    ingress: IngressConfig | None = None
    """How people reach `url`; requires `signIn`. Default: port forwarding through the API server."""

    def release(self) -> Grafana | None:
        """Return the Grafana that the stack installs; None where it installs none."""
        if not self.admin_secret_name:
            return None
        found = self.sign_in
        return Grafana(
            url=self.url,
            admin_secret=self.admin_secret_name,
            sign_in=SignIn(
                auth_url=found.auth_url,
                token_url=found.token_url,
                userinfo_url=found.userinfo_url,
                client_id=found.client_id,
                secret=found.secret_name,
                groups=found.groups,
                admin_groups=found.admin_groups,
                groups_claim=found.groups_claim,
            )
            if found
            else None,
            ingress=self.ingress.args() if self.ingress else None,
        )


def section_of(stack: PartialStack) -> dict[str, Any]:
    """Return the section `observability`, empty if it is missing or invalid."""
    section = stack.raw.get("observability")
    return section if isinstance(section, dict) else {}


def _operator(stack: PartialStack) -> dict[str, Any] | None:
    operators = stack.raw.get("operators")
    found = operators.get(NAME) if isinstance(operators, dict) else None
    return found if isinstance(found, dict) else None


def check_grafana_admin(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require a Secret for Grafana's admin password instead of the chart's default."""
    grafana = section_of(stack).get("grafana")
    operator = _operator(stack) or {}
    if not isinstance(grafana, dict) or operator.get("provided") is not False:
        return
    if grafana.get("adminSecretName") is None:
        yield ConfigIssue(
            path="observability.grafana.adminSecretName",
            code="missing",
            problem="missing",
            valid="must name a Secret in namespace monitoring with the keys admin-user "
            "and admin-password",
            action="add it, and create the Secret during the first update, once the namespace exists",
        )


def check_grafana_ways_in(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require that the stack installs the Grafana that people enter, and that they sign in by name."""
    grafana = section_of(stack).get("grafana")
    if not isinstance(grafana, dict):
        return
    if "ingress" in grafana and "signIn" not in grafana:
        yield ConfigIssue(
            path="observability.grafana.ingress",
            code="ingress-without-sign-in",
            problem="opens Grafana to a network with the administrator's password only",
            valid="requires observability.grafana.signIn",
            action="add signIn, or remove ingress and forward a port",
        )
    installed = (_operator(stack) or {}).get("provided") is False
    for key in ("signIn", "ingress"):
        if key in grafana and _operator(stack) is not None and not installed:
            yield ConfigIssue(
                path=f"observability.grafana.{key}",
                code="not-installed",
                problem=f"operators.{NAME} is provided by the cluster",
                valid="requires a Grafana that the stack installs",
                action=f"remove it, or set provided: false of operators.{NAME}",
            )


CHECKS: Final[tuple[Check, ...]] = (check_grafana_admin, check_grafana_ways_in)
