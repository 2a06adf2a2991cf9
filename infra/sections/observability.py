"""Metrics, dashboards and alert receivers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from infra.addons.kube_prometheus_stack import KubePrometheusStackArgs
from infra.domain import prices, quantity
from infra.domain.pools import NodePool
from infra.observability.component import ObservabilityArgs
from infra.observability.monitors import GPU_EXPORTERS
from infra.observability.recording import Facts, NodePrice
from infra.observability.routing import Channel, Receiver, Severity
from infra.sections.grafana import GrafanaConfig, Https
from infra.sections.types import DnsLabel, Int, Number, Size, Str, StrictModel, matching

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
    """Team whose alerts it receives. Default: the platform's, and those of teams without a receiver."""
    severity: Severity | None = None
    """page or ticket. Default: both."""
    channel: SlackChannel | None = None
    """Slack channel; required with kind slack."""

    @property
    def receiver(self) -> Receiver:
        """Return the receiver for the alert routing."""
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
    """Metrics, their retention, dashboards and alert receivers."""

    retention_days: Int = Field(default=30, ge=1, le=730)
    """Days that Prometheus keeps samples."""
    volume: Size = "100Gi"
    """Size of the Prometheus volume; when it is nearly full, the oldest samples are deleted."""
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


def release(
    section: ObservabilityConfig, cluster: str, default_class: str
) -> KubePrometheusStackArgs:
    """Return the arguments of the release that the stack installs."""
    return KubePrometheusStackArgs(
        cluster=cluster,
        retention_days=section.retention_days,
        volume_bytes=quantity.bytes_(section.volume),
        storage_class=section.storage_class or default_class,
        scrape_seconds=section.scrape_seconds,
        receivers=tuple(one.receiver for one in section.receivers),
        grafana=section.grafana.release() if section.grafana else None,
    )


def component_args(
    section: ObservabilityConfig,
    present: Collection[str],
    *,
    isolated: bool,
    pools: Sequence[NodePool],
    team_budgets: Mapping[str, float],
    costs: bool,
    steering: bool,
    prometheus_clients: Sequence[str],
) -> ObservabilityArgs:
    """Return rules, monitors and dashboards for a cluster with the operators `present`.

    `team_budgets`: by team, the hourly budget of its on-demand nodes in USD. `costs`, `steering`: whether the
    stack has these add-ons. `prometheus_clients`: namespaces of the
    stack's programs that query Prometheus.
    """
    # Rules load every alert: only an update needs them.
    from infra.observability import dashboards
    from infra.observability.rules import rule_file

    facts = Facts(
        prices=tuple(
            NodePrice(
                instance_type=price.instance_type,
                capacity=price.purchase.value,
                usd_per_hour=price.usd_per_hour,
            )
            for price in prices.price_list(pools)
        ),
        purchase_labels=prices.PURCHASE_LABELS,
        reserved_pools=tuple(pool.name for pool in pools if pool.reservation),
        team_budgets=team_budgets,
        stack_budget=section.budget_usd_per_hour,
        costs=costs,
        steering=steering,
    )
    exporters = [name for name in GPU_EXPORTERS if name in present]
    return ObservabilityArgs(
        groups=rule_file(facts, section.runbooks or "")["groups"],
        dashboards=dashboards.texts(),
        scrape_seconds=section.scrape_seconds,
        gpu_exporter=exporters[0] if exporters else "",
        kueue="kueue" in present,
        costs=costs,
        steering=steering,
        prometheus_clients=prometheus_clients,
        isolated=isolated,
    )
