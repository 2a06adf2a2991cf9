"""Alert routing and inhibition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from infra.observability import routing
from infra.sections.observability import Channel, ReceiverConfig, Severity


def receiver(name: str, **changed: Any) -> ReceiverConfig:
    fields: dict[str, Any] = {"kind": Channel.WEBHOOK, "secret_name": "alerting", "key": name}
    return ReceiverConfig(name=name, **(fields | changed))


def matches(matcher: str, labels: Mapping[str, str]) -> bool:
    """Evaluate a matcher like Alertmanager: a missing label is an empty string."""
    name, operator, value = re.fullmatch(r'(\w+)(=~|!~|!=|=)"(.*)"', matcher).groups()  # type: ignore[union-attr]
    text = labels.get(name, "")
    found = re.fullmatch(value, text) is not None if "~" in operator else text == value
    return found is not operator.startswith("!")


def receivers_of(receivers: list[ReceiverConfig], **labels: str) -> list[str]:
    """Names of the receivers of an alert with these labels."""
    routes = routing.configuration(receivers)["route"]["routes"]
    assert all(route["continue"] for route in routes)
    return [r["receiver"] for r in routes if all(matches(m, labels) for m in r["matchers"])]


PLATFORM = receiver("platform")
RESEARCH = receiver("research", team="research")
NIGHT = receiver("night", severity=Severity.PAGE)


def test_team_receiver_gets_only_alerts_of_its_team() -> None:
    receivers = [PLATFORM, RESEARCH]
    assert receivers_of(receivers, owner="team", team="research", severity="page") == ["research"]
    assert receivers_of(receivers, owner="team", team="production", severity="page") == ["platform"]
    assert receivers_of(receivers, owner="platform", severity="page") == ["platform"]


def test_platform_alert_with_a_team_label_is_not_routed_to_the_team() -> None:
    assert receivers_of([RESEARCH], owner="platform", team="research", severity="page") == []


@pytest.mark.parametrize(
    ("severity", "notified"),
    [("critical", ["platform", "night"]), ("warning", ["platform"]), ("info", []), ("none", [])],
)
def test_chart_alerts_are_routed_to_the_platform(severity: str, notified: list[str]) -> None:
    assert (
        receivers_of([PLATFORM, NIGHT, RESEARCH], severity=severity, alertname="KubeletDown")
        == notified
    )


def test_chart_alerts_about_team_namespaces_are_dropped() -> None:
    of_chart = {"severity": "warning", "alertname": "KubeJobFailed"}
    assert receivers_of([PLATFORM], **of_chart, namespace="team-research") == []
    assert receivers_of([PLATFORM], **of_chart, namespace="kueue-system") == ["platform"]


def test_alerts_that_no_team_receiver_accepts_reach_the_platform() -> None:
    pages_only = receiver("research", team="research", severity=Severity.PAGE)
    notified = [
        receivers_of([PLATFORM, pages_only], owner="team", team="research", severity=s)
        for s in Severity
    ]
    assert "platform" in notified[1] and "research" not in notified[1]
    assert "research" in notified[0]


def test_pager_receiver_gets_no_tickets() -> None:
    assert receivers_of([NIGHT], owner="platform", severity="page") == ["night"]
    assert receivers_of([NIGHT], owner="platform", severity="ticket") == []


@pytest.mark.parametrize("channel", list(Channel))
def test_alertmanager_config_refers_to_secrets_by_mounted_file(
    channel: Channel,
) -> None:
    one = receiver("pager", kind=channel, channel="#gpu")
    found = routing.configuration([one])["receivers"][1]
    (settings,) = next(value for key, value in found.items() if key != "name")
    files = [value for key, value in settings.items() if key.endswith("_file")]
    assert files == ["/etc/alertmanager/secrets/alerting/pager"]
    assert routing.secrets([one, one]) == ["alerting"]
