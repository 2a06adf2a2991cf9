"""Metrics, dashboards and alerts, in the stack file."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from infra.config.types import DnsLabel, Int, Number, Size, Str, StrictModel, matching
from infra.observability.routing import Channel, Receiver, Severity

_HTTPS: Final = r"https://[A-Za-z0-9.-]+(:[0-9]+)?(/[\w./-]*)?"

Https = Annotated[
    Str, AfterValidator(matching("url", _HTTPS, "a URL such as https://grafana.example.com"))
]
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


class GrafanaConfig(StrictModel):
    """Where people look at dashboards."""

    url: Https = Field(description="the URL under which people reach Grafana")
    """External URL of Grafana; links of runs and alerts use it."""
    admin_secret_name: DnsLabel | None = None
    """A Secret of the namespace `monitoring` with the keys admin-user and admin-password; whoever puts it
    there, it is not the stack. Needed where the stack installs Grafana."""


class ReceiverConfig(StrictModel):
    """Somebody who is told of alerts."""

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
    """Team whose alerts it receives. Default: the platform's, and those of teams without a receiver."""
    severity: Severity | None = None
    """page or ticket. Default: both."""
    channel: SlackChannel | None = None
    """Slack's; needed there."""

    @property
    def receiver(self) -> Receiver:
        """As the platform works with it."""
        return Receiver(
            name=self.name,
            channel=self.kind,
            secret=self.secret_name,
            key=self.key,
            team=self.team or "",
            severity=self.severity,
            slack_channel=self.channel or "",
        )


class ObservabilityConfig(StrictModel):
    """What is measured, how long it is kept, and who hears of trouble."""

    retention_days: Int = Field(default=30, ge=1, le=730)
    """Days that Prometheus keeps samples."""
    volume: Size = "100Gi"
    """Of Prometheus; when it is nearly full the oldest samples go, whatever their age."""
    storage_class: DnsLabel | None = None
    """Of volumes that one node writes. Default: encrypted gp3 on a cluster that the stack makes, else the
    cluster's default class."""
    scrape_seconds: Int = Field(default=30, ge=5, le=300)
    """Seconds between scrapes."""
    grafana: GrafanaConfig | None = None
    """Grafana, for links to dashboards. Default: none."""
    receivers: tuple[ReceiverConfig, ...] = ()
    """Notification targets of alerts. Default: none; alerts are only shown."""
    budget_usd_per_hour: Annotated[Number, Field(gt=0)] | None = None
    """Hourly cost of all nodes, at catalog prices, above which an alert fires. Default: no alert."""
    runbooks: Https | None = None
    """URL of this repository's files, such as https://github.com/acme/training/blob/main. Default: alerts
    name the page's path."""
