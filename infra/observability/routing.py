"""Alertmanager's routes, from a list of receivers.

Trainyard's alerts have the labels `owner` (platform or team), `severity` (page or ticket) and, if they
concern a team, `team`. Alerts that no receiver of a team accepts go to the platform's receivers; without
these they are only shown.

Alerts of kube-prometheus-stack have their own severities and no owner: they belong to the platform.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from infra.observability import series
from infra.observability.alerts import RANK_ALERTS
from infra.sections.observability import Channel, ReceiverConfig, Severity

SECRETS_FOLDER: Final = "/etc/alertmanager/secrets"
"""Where the operator mounts the Secrets that the Alertmanager object names."""

NULL_RECEIVER: Final = "nobody"

LOADER_ALERTS: Final = ("LowGpuUtilization", "SlowLoaderHint")
"""Alerts about one run: the first implies the second."""


def configuration(receivers: Sequence[ReceiverConfig]) -> dict[str, Any]:
    """Return Alertmanager's configuration; it contains paths of secrets, never their values."""
    teams = [r for r in receivers if r.team]
    platform = [r for r in receivers if not r.team]
    return {
        "route": {
            "receiver": NULL_RECEIVER,
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
        "receivers": [{"name": NULL_RECEIVER}, *(_receiver(receiver) for receiver in receivers)],
    }


def secrets(receivers: Sequence[ReceiverConfig]) -> list[str]:
    return sorted({receiver.secret_name for receiver in receivers})


def _inhibitions() -> Iterator[dict[str, Any]]:
    """Suppress further alerts with the same cause."""
    idle, slow = LOADER_ALERTS
    yield {
        "source_matchers": [f'alertname="{idle}"'],
        "target_matchers": [f'alertname="{slow}"'],
        "equal": ["namespace", "run_id"],
    }
    yield {
        "source_matchers": ['severity="critical"'],
        "target_matchers": ['severity="warning"'],
        "equal": ["namespace", "alertname"],
    }


def _severity(receiver: ReceiverConfig) -> list[str]:
    return [f'severity="{receiver.severity}"'] if receiver.severity else []


def _route(receiver: ReceiverConfig) -> dict[str, Any]:
    """Route the alerts of one team; `continue` passes them to its other receivers, too."""
    return _to(receiver, 'owner="team"', f'team="{receiver.team}"', *_severity(receiver))


def _to(receiver: ReceiverConfig, *matchers: str) -> dict[str, Any]:
    return {"receiver": receiver.name, "matchers": list(matchers), "continue": True}


def _fallback(
    receiver: ReceiverConfig, teams: Sequence[ReceiverConfig]
) -> Iterator[dict[str, Any]]:
    """Route the platform's alerts, alerts that no receiver of their team accepts, and the chart's.

    Tickets of a team that receives only pages arrive here. The chart's alerts on team namespaces are excluded:
    workloads there are short-lived, and Trainyard's alerts cover them.
    """
    complete = _covered_teams(teams, receiver.severity)
    others = [f'team!~"{"|".join(complete)}"'] if complete else []
    chosen = [receiver.severity] if receiver.severity else list(Severity)
    of_chart = "|".join(one.of_chart for one in chosen)
    severity = _severity(receiver)
    at_once = {"matchers": [f'alertname=~"{"|".join(RANK_ALERTS)}"'], "group_wait": "0s"}
    yield {**_to(receiver, 'owner="platform"', *severity), "routes": [at_once]}
    yield _to(receiver, 'owner="team"', *others, *severity)
    elsewhere = f'namespace!~"{series.TEAM_NAMESPACES}"'
    yield _to(receiver, 'owner=""', f'severity=~"{of_chart}"', elsewhere)


def _covered_teams(teams: Sequence[ReceiverConfig], severity: Severity | None) -> list[str]:
    """Return the teams whose own receivers accept all alerts of a severity, or of both."""
    wanted = {severity} if severity else set(Severity)
    accepted: dict[str, set[Severity]] = {}
    for receiver in teams:
        taken = {receiver.severity} if receiver.severity else set(Severity)
        accepted.setdefault(receiver.team or "", set()).update(taken)
    return sorted(team for team, taken in accepted.items() if wanted <= taken)


def _receiver(receiver: ReceiverConfig) -> dict[str, Any]:
    path = f"{SECRETS_FOLDER}/{receiver.secret_name}/{receiver.key}"
    title = "{{ .CommonLabels.alertname }} {{ .CommonLabels.run_id }}"
    text = (
        "{{ range .Alerts }}{{ .Annotations.summary }}\n{{ .Annotations.description }}\n"
        "Runbook: {{ .Annotations.runbook }}\n{{ end }}"
    )
    channels: dict[Channel, dict[str, Any]] = {
        Channel.SLACK: {
            "slack_configs": [
                {
                    "api_url_file": path,
                    "channel": receiver.channel,
                    "title": title,
                    "text": text,
                    "send_resolved": True,
                }
            ]
        },
        Channel.PAGERDUTY: {
            "pagerduty_configs": [
                {"routing_key_file": path, "description": title, "send_resolved": True}
            ]
        },
        Channel.WEBHOOK: {"webhook_configs": [{"url_file": path, "send_resolved": True}]},
    }
    return {"name": receiver.name, **channels[receiver.kind]}
