"""Logs, metrics, Grafana and receivers of alerts."""

from __future__ import annotations

from collections.abc import Iterator

from infra.addons.kube_prometheus_stack import NAME as PROMETHEUS
from infra.config.model import StackConfig
from infra.sections.errors import ConfigIssue, did_you_mean, issue, one_of, shown
from infra.sections.observability import Channel


def check_logs(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require one destination with a shipper; CloudWatch only on EKS, whose pods have a role for it."""
    shipper, section = stack.operators.present().get("fluentBit"), stack.logs
    given = {"cloudwatch": section.cloudwatch, "loki": section.loki} if section else {}
    named = [key for key, value in given.items() if value is not None]
    if section and len(named) != 1:
        yield issue(
            "log-destination",
            "logs",
            f"{' and '.join(named) + ' are' if named else 'no destination is'} set",
            "exactly one of cloudwatch and loki is required",
            f"{'remove the others' if named else 'add one, or remove logs'}",
        )
    elif named == ["cloudwatch"] and not stack.eks:
        yield issue(
            "aws-only",
            "logs.cloudwatch",
            "cloudwatch requires a cluster on AWS",
            "must be loki where cluster.provider is existing",
            "use loki",
        )
    if section and not (shipper and not shipper.provided):
        yield issue(
            "log-shipper-missing",
            "logs",
            "no log shipper is installed",
            "requires operators.fluentBit: {provided: false}",
            "add that to operators, or remove logs",
        )
    elif not section and shipper and not shipper.provided and not stack.eks:
        yield issue(
            "log-destination",
            "logs",
            "missing, but operators.fluentBit is installed",
            "fluentBit requires a destination: loki",
            "add it, or remove fluentBit from operators",
        )


def check_grafana(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require Prometheus, and of people who enter the Grafana that the stack installs names of their own."""
    section, operator = stack.observability, stack.operators.present().get(PROMETHEUS)
    if section and operator is None:
        yield issue(
            "operator-required",
            "observability",
            f"operators.{PROMETHEUS} is missing",
            f"requires operators.{PROMETHEUS}, whose objects it creates",
            f"add {PROMETHEUS} to operators, with provided: true if the cluster has it",
        )
    grafana = section.grafana if section else None
    if grafana is None:
        return
    if operator and not operator.provided and grafana.admin_secret_name is None:
        yield issue(
            "missing",
            "observability.grafana.adminSecretName",
            "missing",
            "must name a Secret in namespace monitoring with the keys admin-user and "
            "admin-password",
            "add it, and create the Secret during the first update, once the namespace exists",
        )
    if grafana.ingress and not grafana.sign_in:
        yield issue(
            "ingress-without-sign-in",
            "observability.grafana.ingress",
            "opens Grafana to a network with the administrator's password only",
            "requires observability.grafana.signIn",
            "add signIn, or remove ingress and forward a port",
        )
    for key, value in (("signIn", grafana.sign_in), ("ingress", grafana.ingress)):
        if value and operator and operator.provided:
            yield issue(
                "not-installed",
                f"observability.grafana.{key}",
                f"operators.{PROMETHEUS} is provided by the cluster",
                "requires a Grafana that the stack installs",
                f"remove it, or set provided: false of operators.{PROMETHEUS}",
            )


def check_receivers(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require unique names, known teams, and a channel for Slack only."""
    teams = [team.name for team in stack.teams]
    first: dict[str, str] = {}
    for index, receiver in enumerate(stack.observability.receivers if stack.observability else ()):
        path, kind = f"observability.receivers[{index}]", receiver.kind
        if first.setdefault(receiver.name, path) != path:
            yield issue(
                "duplicate",
                f"{path}.name",
                f"{shown(receiver.name)} is already used by {first[receiver.name]}",
                "names must be unique",
                "rename one of them",
            )
        if receiver.team and receiver.team not in teams:
            otherwise = "name a team, or remove it to receive the platform's alerts"
            yield issue(
                "unknown-name",
                f"{path}.team",
                f"unknown team {shown(receiver.team)}",
                f"must be one of {one_of(teams)}",
                did_you_mean(receiver.team, teams, otherwise),
            )
        if kind is Channel.SLACK and receiver.channel is None:
            yield issue(
                "missing",
                f"{path}.channel",
                "missing",
                "kind: slack requires a channel such as '#gpu-alerts'",
                "add it",
            )
        elif kind is not Channel.SLACK and receiver.channel is not None:
            yield issue(
                "channel-without-slack",
                f"{path}.channel",
                f"{shown(receiver.channel)} is not used by kind: {kind.value}",
                "requires kind: slack",
                "remove it",
            )
