"""Metrics, dashboards and alert receivers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from infra.sections.types import DnsLabel, Int, Size, Str, StrictModel, matching

_HTTPS: Final = r"https://[A-Za-z0-9.-]+(:[0-9]+)?(/[\w./-]*)?"


Https = Annotated[
    Str, AfterValidator(matching("url", _HTTPS, "a URL such as https://grafana.example.com"))
]


_WORD: Final = r"[\w.:@/-]{1,200}"
Word = Annotated[Str, AfterValidator(matching("word", _WORD, "letters, digits and .:@/_-"))]
Claim = Annotated[
    Str, AfterValidator(matching("claim", r"[A-Za-z_]\w{0,99}", "the name of a claim, as groups"))
]


class IngressConfig(StrictModel):
    """An Ingress of the URL's host, with TLS."""

    class_name: DnsLabel = Field(description="the name of an IngressClass")
    """IngressClass."""
    tls_secret_name: DnsLabel = Field(description="the name of a Secret with a certificate")
    """Secret with the host's certificate, in the page's namespace."""
    annotations: dict[Str, Str] = Field(default={})
    """Annotations for its controller, such as for an internal load balancer."""


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


class Channel(StrEnum):
    """How a receiver is notified."""

    SLACK = "slack"
    PAGERDUTY = "pagerduty"
    WEBHOOK = "webhook"


class Severity(StrEnum):
    """Urgency of an alert."""

    PAGE = "page"
    TICKET = "ticket"

    @property
    def of_chart(self) -> str:
        """Return the corresponding severity in alerts of kube-prometheus-stack."""
        return "critical" if self is Severity.PAGE else "warning"


SecretKey = Annotated[
    Str,
    AfterValidator(
        matching("secret-key", r"[-._a-zA-Z0-9]{1,253}", "a key of a Secret such as url")
    ),
]


SlackChannel = Annotated[
    Str,
    AfterValidator(
        matching("slack-channel", r"#[^\s#{}]{1,80}", "a channel such as '#gpu-alerts'")
    ),
]


class ReceiverConfig(StrictModel):
    """A notification target of alerts."""

    name: DnsLabel = Field(description="a DNS label")
    """Name of the receiver."""
    kind: Channel = Field(description="slack, pagerduty or webhook")
    """Notification channel."""
    secret_name: DnsLabel = Field(description="the name of a Secret of the namespace monitoring")
    """Secret with the URL or routing key."""
    key: SecretKey = Field(
        description="the key in that Secret whose value is the URL, or PagerDuty's routing key"
    )
    """Key in that Secret."""
    team: DnsLabel | None = None
    """Team whose alerts it receives. Default: the platform's alerts and those of teams without a receiver."""
    severity: Severity | None = None
    """page or ticket. Default: both."""
    channel: SlackChannel | None = None
    """Slack channel; required with kind slack."""


class ObservabilityConfig(StrictModel):
    """Metrics, their retention, dashboards and alert receivers."""

    retention_days: Int = Field(default=30, ge=1, le=730)
    """Days to keep samples."""
    volume: Size = "100Gi"
    """Size of Prometheus' volume; nearly full, it drops the oldest samples."""
    storage_class: DnsLabel | None = None
    """StorageClass for ReadWriteOnce volumes. Default: encrypted gp3 on a cluster of the stack, else the
    cluster's default."""
    scrape_seconds: Int = Field(default=30, ge=5, le=300)
    """Seconds between scrapes."""
    grafana: GrafanaConfig | None = None
    """Grafana, for links to dashboards. Default: none."""
    receivers: tuple[ReceiverConfig, ...] = ()
    """Notification targets of alerts. Default: none; alerts are only shown."""
    runbooks: Https | None = None
    """URL of this repository, such as https://github.com/acme/training/blob/main. Default: alerts name the page's
    path."""
