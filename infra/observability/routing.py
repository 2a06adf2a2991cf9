"""Who is told of which alert: Alertmanager's routes, from a list of receivers.

An alert of ours has the labels `owner` (platform or team), `severity` (page or ticket) and, where it is about a
team, `team`. What no receiver of a team takes goes to the platform's; what nobody takes is only shown.

Alerts that kube-prometheus-stack brings have a severity of their own and no owner: they are the platform's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from infra.observability import series

SECRETS_FOLDER: Final = "/etc/alertmanager/secrets"
"""Where the operator mounts Secrets that the Alertmanager object names."""

NOBODY: Final = "nobody"

LOADER_ALERTS: Final = ("LoaderStarvation", "LowGpuUtilization", "SlowLoaderHint")
"""Of one run, the plainest first: each says the same as those after it, and more."""


class Channel(StrEnum):
    """How somebody is told."""

    SLACK = "slack"
    PAGERDUTY = "pagerduty"
    WEBHOOK = "webhook"


class Severity(StrEnum):
    """Whether somebody gets up at night."""

    PAGE = "page"
    TICKET = "ticket"

    @property
    def of_chart(self) -> str:
        """What kube-prometheus-stack calls it in its own alerts."""
        return "critical" if self is Severity.PAGE else "warning"


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """Somebody who is told, by a URL or key that a Secret of the namespace `monitoring` holds."""

    name: str
    channel: Channel
    secret: str
    key: str
    """In the Secret: Slack's or the webhook's URL, or PagerDuty's routing key."""
    team: str = ""
    """Whose alerts; empty: the platform's, and those of teams without a receiver."""
    severity: Severity | None = None
    """None: both."""
    slack_channel: str = ""

    @property
    def file(self) -> str:
        """Where Alertmanager finds the URL or key."""
        return f"{SECRETS_FOLDER}/{self.secret}/{self.key}"


def configuration(receivers: Sequence[Receiver]) -> dict[str, Any]:
    """Alertmanager's configuration; it holds paths of secrets, never secrets."""
    teams = [r for r in receivers if r.team]
    platform = [r for r in receivers if not r.team]
    return {
        "route": {
            "receiver": NOBODY,
            "group_by": ["alertname", "namespace", "run_id"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "12h",
            "routes": [
                *(_route(receiver) for receiver in teams),
                *(route for receiver in platform for route in _fallback(receiver, teams)),
            ],
        },
        "inhibit_rules": list(_inhibitions()),
        "receivers": [{"name": NOBODY}, *(_receiver(receiver) for receiver in receivers)],
    }


def secrets(receivers: Sequence[Receiver]) -> list[str]:
    """Names of the Secrets that Alertmanager has to see."""
    return sorted({receiver.secret for receiver in receivers})


def _inhibitions() -> Iterator[dict[str, Any]]:
    """One ticket for one cause."""
    for number, plain in enumerate(LOADER_ALERTS[:-1], start=1):
        yield {
            "source_matchers": [f'alertname="{plain}"'],
            "target_matchers": [f'alertname=~"{"|".join(LOADER_ALERTS[number:])}"'],
            "equal": ["namespace", "run_id"],
        }
    yield {
        "source_matchers": ['severity="critical"'],
        "target_matchers": ['severity="warning"'],
        "equal": ["namespace", "alertname"],
    }


def _severity(receiver: Receiver) -> list[str]:
    return [f'severity="{receiver.severity}"'] if receiver.severity else []


def _route(receiver: Receiver) -> dict[str, Any]:
    """Alerts of one team; `continue` lets its other receivers hear of them, too."""
    matchers = ['owner="team"', f'team="{receiver.team}"', *_severity(receiver)]
    return {"receiver": receiver.name, "matchers": matchers, "continue": True}


def _fallback(receiver: Receiver, teams: Sequence[Receiver]) -> Iterator[dict[str, Any]]:
    """The platform's own, whichever team they name; teams' that nobody of theirs takes; the chart's.

    A team that is told of pages only leaves its tickets here. The chart's alerts on namespaces of teams are left
    out: what runs there comes and goes, and ours tell of it.
    """
    complete = _told_of_everything(teams, receiver.severity)
    others = [f'team!~"{"|".join(complete)}"'] if complete else []
    chosen = [receiver.severity] if receiver.severity else list(Severity)
    of_chart = "|".join(one.of_chart for one in chosen)
    for matchers in (
        ['owner="platform"', *_severity(receiver)],
        ['owner="team"', *others, *_severity(receiver)],
        ['owner=""', f'severity=~"{of_chart}"', f'namespace!~"{series.TEAM_NAMESPACES}"'],
    ):
        yield {"receiver": receiver.name, "matchers": matchers, "continue": True}


def _told_of_everything(teams: Sequence[Receiver], severity: Severity | None) -> list[str]:
    """Teams whose own receivers take all alerts of a severity, or of both."""
    wanted = {severity} if severity else set(Severity)
    heard: dict[str, set[Severity]] = {}
    for receiver in teams:
        taken = {receiver.severity} if receiver.severity else set(Severity)
        heard.setdefault(receiver.team, set()).update(taken)
    return sorted(team for team, taken in heard.items() if wanted <= taken)


def _receiver(receiver: Receiver) -> dict[str, Any]:
    title = "{{ .CommonLabels.alertname }} {{ .CommonLabels.run_id }}"
    text = (
        "{{ range .Alerts }}{{ .Annotations.summary }}\n{{ .Annotations.description }}\n"
        "Runbook: {{ .Annotations.runbook }}\n{{ end }}"
    )
    told: dict[Channel, dict[str, Any]] = {
        Channel.SLACK: {
            "slack_configs": [
                {
                    "api_url_file": receiver.file,
                    "channel": receiver.slack_channel,
                    "title": title,
                    "text": text,
                    "send_resolved": True,
                }
            ]
        },
        Channel.PAGERDUTY: {
            "pagerduty_configs": [
                {"routing_key_file": receiver.file, "description": title, "send_resolved": True}
            ]
        },
        Channel.WEBHOOK: {"webhook_configs": [{"url_file": receiver.file, "send_resolved": True}]},
    }
    return {"name": receiver.name, **told[receiver.channel]}
