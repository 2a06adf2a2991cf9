"""Metrics, dashboards and alert receivers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from infra.sections.grafana import GrafanaConfig, Https
from infra.sections.types import DnsLabel, Int, Size, Str, StrictModel, matching


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
