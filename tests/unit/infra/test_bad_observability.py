"""Mistakes in `observability`: each is one exact line."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import ConfigError, parse
from tests.golden.example_runs import stack_values as example


def lines(section: dict[str, Any], **operator: Any) -> list[str]:
    """What a stack with this section and kubePrometheusStack is told."""
    stack = example()
    stack["observability"] = section
    if operator:
        stack["operators"]["kubePrometheusStack"] = operator
    try:
        parse(stack)
    except ConfigError as error:
        return list(error.lines)
    return []


def told(section: dict[str, Any], **operator: Any) -> str:
    (line,) = [line for line in lines(section, **operator) if line.startswith("observability")]
    return line


PAGER = {"name": "pager", "kind": "pagerduty", "secretName": "alerting", "key": "routing"}


def test_a_good_section_is_accepted() -> None:
    grafana = {"url": "https://grafana.acme.dev", "adminSecretName": "grafana-admin"}
    assert lines({"grafana": grafana, "receivers": [PAGER]}, provided=False) == []


def test_objects_of_an_operator_need_the_operator() -> None:
    assert told({"retentionDays": 7}) == (
        "observability: got no operators.kubePrometheusStack; allowed it together with "
        "operators.kubePrometheusStack, whose objects it makes; add kubePrometheusStack to operators, "
        "provided: true if the cluster has it"
    )


def test_grafana_needs_a_password_that_is_not_the_charts() -> None:
    section = {"grafana": {"url": "https://grafana.acme.dev"}}
    assert told(section, provided=False).startswith(
        "observability.grafana.adminSecretName: got nothing; allowed a Secret of the namespace monitoring"
    )
    assert lines(section, provided=True) == []


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {"team": "reserch"},
            "observability.receivers[0].team: got 'reserch'; allowed production, research; name a team "
            "of this stack, or remove it to hear of the platform's alerts",
        ),
        (
            {"channel": "#gpu"},
            "observability.receivers[0].channel: got '#gpu'; allowed a channel for kind slack only; "
            "remove it",
        ),
        (
            {"kind": "slack"},
            "observability.receivers[0].channel: got nothing; allowed a channel such as '#gpu-alerts', for "
            "Slack's message has to go somewhere; add it",
        ),
        (
            {"key": "https://hooks.example.com/T0/B0"},
            "observability.receivers[0].key: got 'https://hooks.example.com/T0/B0'; allowed a key of a "
            "Secret such as url; correct it",
        ),
    ],
)
def test_a_receiver_that_could_not_be_told_is_one_line(changed: dict[str, Any], line: str) -> None:
    assert told({"receivers": [PAGER | changed]}, provided=False) == line


def test_two_receivers_of_one_name_are_told_apart() -> None:
    assert told({"receivers": [PAGER, PAGER]}, provided=False) == (
        "observability.receivers[1].name: got 'pager'; allowed a name of its own "
        "(observability.receivers[0] has this one); rename one of them"
    )
