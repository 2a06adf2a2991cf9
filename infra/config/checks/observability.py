"""Observability: somebody to install it, receivers that can be told apart, teams that exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown

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
    if _section(parts) and parts.operators is not None and STACK not in parts.operators:
        yield ConfigIssue(
            path="observability",
            code="operator-required",
            problem=f"operators.{STACK} is missing",
            valid=f"requires operators.{STACK}, whose objects it creates",
            action=f"add {STACK} to operators, with provided: true if the cluster has it",
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
            code="missing",
            problem="missing",
            valid="must name a Secret in namespace monitoring with the keys admin-user "
            "and admin-password",
            action="add it, and create the Secret before the first update",
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
                code="duplicate",
                problem=f"{shown(name)} is already used by {first[name]}",
                valid="names must be unique",
                action="rename one of them",
            )
        team = receiver.get("team")
        if team is not None and team not in teams and parts.teams_named:
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
