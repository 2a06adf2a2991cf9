"""Metrics, dashboards and alert receivers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from infra.addons.kube_prometheus_stack import NAME, KubePrometheusStackArgs
from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown
from infra.config.partial import Check, PartialStack
from infra.config.sections import grafana
from infra.config.sections.grafana import GrafanaConfig, Https, section_of
from infra.config.sections.teams.model import read_teams, teams_named
from infra.config.types import DnsLabel, Int, Number, Size, Str, StrictModel, matching
from infra.domain import prices, quantity
from infra.domain.pools import NodePool
from infra.observability.component import ObservabilityArgs
from infra.observability.monitors import GPU_EXPORTERS
from infra.observability.recording import Facts, NodePrice
from infra.observability.routing import Channel, Receiver, Severity

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


def _receivers(stack: PartialStack) -> Iterator[tuple[str, dict[str, Any]]]:
    receivers = section_of(stack).get("receivers")
    for index, receiver in enumerate(receivers if isinstance(receivers, list) else []):
        if isinstance(receiver, dict):
            yield f"observability.receivers[{index}]", receiver


def check_prometheus_installed(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require the operator whose objects the section creates."""
    if section_of(stack) and stack.operators is not None and NAME not in stack.operators:
        yield ConfigIssue(
            path="observability",
            code="operator-required",
            problem=f"operators.{NAME} is missing",
            valid=f"requires operators.{NAME}, whose objects it creates",
            action=f"add {NAME} to operators, with provided: true if the cluster has it",
        )


def check_receivers(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require unique names, known teams, and a channel for Slack only."""
    teams = sorted({team.name for _, team in read_teams(stack)})
    first: dict[str, str] = {}
    for path, receiver in _receivers(stack):
        name = receiver.get("name")
        if isinstance(name, str) and first.setdefault(name, path) != path:
            yield ConfigIssue(
                path=f"{path}.name",
                code="duplicate",
                problem=f"{shown(name)} is already used by {first[name]}",
                valid="names must be unique",
                action="rename one of them",
            )
        team = receiver.get("team")
        if team is not None and team not in teams and teams_named(stack):
            yield ConfigIssue(
                path=f"{path}.team",
                code="unknown-name",
                problem=f"unknown team {shown(team)}",
                valid=f"must be one of {one_of(teams)}",
                action=did_you_mean(
                    str(team), teams, "name a team, or remove it to receive the platform's alerts"
                ),
            )
        yield from _slack_channel(path, receiver)


def _slack_channel(path: str, receiver: dict[str, Any]) -> Iterator[ConfigIssue]:
    kind, channel = receiver.get("kind"), receiver.get("channel")
    if kind == "slack" and channel is None:
        yield ConfigIssue(
            path=f"{path}.channel",
            code="missing",
            problem="missing",
            valid="kind: slack requires a channel such as '#gpu-alerts'",
            action="add it",
        )
    elif kind in ("pagerduty", "webhook") and channel is not None:
        yield ConfigIssue(
            path=f"{path}.channel",
            code="channel-without-slack",
            problem=f"{shown(channel)} is not used by kind: {kind}",
            valid="requires kind: slack",
            action="remove it",
        )


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


CHECKS: Final[tuple[Check, ...]] = (
    check_prometheus_installed,
    *grafana.CHECKS,
    check_receivers,
)
