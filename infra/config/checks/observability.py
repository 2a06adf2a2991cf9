"""Observability: somebody to install it, receivers that can be told apart, teams that exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue, one_of, shown

STACK: Final = "kubePrometheusStack"


def _section(parts: PartialStack) -> dict[str, Any]:
    section = parts.raw.get("observability")
    return section if isinstance(section, dict) else {}


def _receivers(parts: PartialStack) -> Iterator[tuple[str, dict[str, Any]]]:
    receivers = _section(parts).get("receivers")
    for index, receiver in enumerate(receivers if isinstance(receivers, list) else []):
        if isinstance(receiver, dict):
            yield f"observability.receivers[{index}]", receiver


def _operator(parts: PartialStack) -> dict[str, Any] | None:
    operators = parts.raw.get("operators")
    found = operators.get(STACK) if isinstance(operators, dict) else None
    return found if isinstance(found, dict) else None


def check_prometheus_installed(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require the operator whose objects the section creates."""
    if _section(parts) and _operator(parts) is None:
        yield ConfigIssue(
            path="observability",
            problem=f"got no operators.{STACK}",
            valid=f"allowed it together with operators.{STACK}, whose objects it makes",
            action=f"add {STACK} to operators, provided: true if the cluster has it",
        )


def check_grafana_admin(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require a Secret for Grafana's admin password instead of the chart's default."""
    grafana = _section(parts).get("grafana")
    operator = _operator(parts) or {}
    if not isinstance(grafana, dict) or operator.get("provided") is not False:
        return
    if grafana.get("adminSecretName") is None:
        yield ConfigIssue(
            path="observability.grafana.adminSecretName",
            problem="got nothing",
            valid="allowed a Secret of the namespace monitoring with the keys admin-user and admin-password",
            action="name it, and put it there before the first update",
        )


def check_receivers(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require unique names, known teams, and a channel for Slack only."""
    teams = sorted({team.name for _, team in parts.teams})
    first: dict[str, str] = {}
    for path, receiver in _receivers(parts):
        name = receiver.get("name")
        if isinstance(name, str) and first.setdefault(name, path) != path:
            yield ConfigIssue(
                path=f"{path}.name",
                problem=f"got {shown(name)}",
                valid=f"allowed a name of its own ({first[name]} has this one)",
                action="rename one of them",
            )
        team = receiver.get("team")
        if team is not None and team not in teams:
            yield ConfigIssue(
                path=f"{path}.team",
                problem=f"got {shown(team)}",
                valid=f"allowed {one_of(teams)}",
                action="name a team of this stack, or remove it to hear of the platform's alerts",
            )
        yield from _slack_channel(path, receiver)


def _slack_channel(path: str, receiver: dict[str, Any]) -> Iterator[ConfigIssue]:
    kind, channel = receiver.get("kind"), receiver.get("channel")
    if kind == "slack" and channel is None:
        yield ConfigIssue(
            path=f"{path}.channel",
            problem="got nothing",
            valid="allowed a channel such as '#gpu-alerts', for Slack's message has to go somewhere",
            action="add it",
        )
    elif kind in ("pagerduty", "webhook") and channel is not None:
        yield ConfigIssue(
            path=f"{path}.channel",
            problem=f"got {shown(channel)}",
            valid="allowed a channel for kind slack only",
            action="remove it",
        )
