"""Invalid values in `observability`: each is one issue."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from tests.golden.example_runs import stack_values as example
from tests.unit.infra.config_issues import check_issues


def stack(section: dict[str, Any], **operator: Any) -> dict[str, Any]:
    """Return a stack with this section and kubePrometheusStack."""
    values = example()
    values["observability"] = section
    if operator:
        values["operators"]["kubePrometheusStack"] = operator
    return values


PAGER = {"name": "pager", "kind": "pagerduty", "secretName": "alerting", "key": "routing"}


def test_valid_section_is_accepted() -> None:
    grafana = {"url": "https://grafana.acme.dev", "adminSecretName": "grafana-admin"}
    parse(stack({"grafana": grafana, "receivers": [PAGER]}, provided=False))


def test_prometheus_objects_require_the_operator() -> None:
    values = stack({"retentionDays": 7})
    check_issues("observability", "no operator", values, "observability: operator-required")


def test_grafana_requires_an_explicit_password() -> None:
    section = {"grafana": {"url": "https://grafana.acme.dev"}}
    expected = "observability.grafana.adminSecretName: missing"
    check_issues("observability", "no password", stack(section, provided=False), expected)
    parse(stack(section, provided=True))


SIGN_IN = {
    "authUrl": "https://id.acme.dev/authorize",
    "tokenUrl": "https://id.acme.dev/token",
    "userinfoUrl": "https://id.acme.dev/userinfo",
    "clientId": "grafana",
    "secretName": "grafana-oidc",
    "groups": ["ml"],
}
INGRESS = {"className": "internal", "tlsSecretName": "grafana-tls"}
GRAFANA = {"url": "https://grafana.acme.dev", "adminSecretName": "grafana-admin"}


@pytest.mark.parametrize(
    ("more", "provided", "expected"),
    [
        ({"ingress": INGRESS}, False, "ingress: ingress-without-sign-in"),
        ({"signIn": SIGN_IN}, True, "signIn: not-installed"),
        ({"signIn": SIGN_IN | {"groups": []}}, False, "signIn.groups: too-few"),
        ({"signIn": SIGN_IN | {"groups": ["a b"]}}, False, "signIn.groups[0]: word"),
        ({"signIn": SIGN_IN | {"tokenUrl": "http://id"}}, False, "signIn.tokenUrl: url"),
        ({"signIn": SIGN_IN | {"groupsClaim": "x'"}}, False, "signIn.groupsClaim: claim"),
    ],
)
def test_each_mistake_in_the_ways_into_grafana_is_one_issue(
    more: dict[str, Any], provided: bool, expected: str
) -> None:
    values = stack({"grafana": GRAFANA | more}, provided=provided)
    check_issues("observability", expected, values, f"observability.grafana.{expected}")


def test_an_ingress_with_sign_in_is_accepted() -> None:
    parse(stack({"grafana": GRAFANA | {"ingress": INGRESS, "signIn": SIGN_IN}}, provided=False))


RECEIVERS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown team": ({"team": "reserch"}, "team: unknown-name"),
    "channel of another kind": ({"channel": "#gpu"}, "channel: channel-without-slack"),
    "Slack without a channel": ({"kind": "slack"}, "channel: missing"),
    "URL as a key": ({"key": "https://hooks.example.com/T0/B0"}, "key: secret-key"),
}


@pytest.mark.parametrize("name", RECEIVERS)
def test_each_invalid_receiver_is_one_issue(name: str) -> None:
    changed, expected = RECEIVERS[name]
    values = stack({"receivers": [PAGER | changed]}, provided=False)
    check_issues("observability", name, values, f"observability.receivers[0].{expected}")


def test_duplicate_receiver_names_are_rejected() -> None:
    values = stack({"receivers": [PAGER, PAGER]}, provided=False)
    expected = "observability.receivers[1].name: duplicate"
    check_issues("observability", "duplicate receiver", values, expected)
