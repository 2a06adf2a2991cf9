"""Who is told of which alert."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from infra.observability import alerts, routing
from infra.observability.routing import Channel, Receiver, Severity


def receiver(name: str, **changed: Any) -> Receiver:
    fields: dict[str, Any] = {"channel": Channel.WEBHOOK, "secret": "alerting", "key": name}
    return Receiver(name=name, **(fields | changed))


def matches(matcher: str, labels: Mapping[str, str]) -> bool:
    """As Alertmanager reads a matcher; a label that is missing is empty text."""
    name, operator, value = re.fullmatch(r'(\w+)(=~|!~|!=|=)"(.*)"', matcher).groups()  # type: ignore[union-attr]
    text = labels.get(name, "")
    found = re.fullmatch(value, text) is not None if "~" in operator else text == value
    return found is not operator.startswith("!")


def told(receivers: list[Receiver], **labels: str) -> list[str]:
    """Names of those who hear of an alert with these labels."""
    routes = routing.configuration(receivers)["route"]["routes"]
    assert all(route["continue"] for route in routes)
    return [r["receiver"] for r in routes if all(matches(m, labels) for m in r["matchers"])]


PLATFORM = receiver("platform")
RESEARCH = receiver("research", team="research")
NIGHT = receiver("night", severity=Severity.PAGE)


def test_a_team_hears_of_its_own_alerts_and_of_nobody_elses() -> None:
    everybody = [PLATFORM, RESEARCH]
    assert told(everybody, owner="team", team="research", severity="page") == ["research"]
    assert told(everybody, owner="team", team="production", severity="page") == ["platform"]
    assert told(everybody, owner="platform", severity="page") == ["platform"]


@pytest.mark.parametrize("alert", alerts.ALERTS, ids=lambda alert: alert.name)
@pytest.mark.parametrize("everybody", [[PLATFORM], [PLATFORM, RESEARCH]], ids=["one", "both"])
def test_every_alert_about_a_team_is_heard_by_one_receiver_and_it_is_its_owners(
    alert: alerts.Alert, everybody: list[Receiver]
) -> None:
    heard = told(everybody, owner=alert.owner, team="research", severity=alert.severity)
    theirs = alert.owner == alerts.TEAM and RESEARCH in everybody
    assert heard == ["research" if theirs else "platform"]


def test_an_alert_of_the_platform_that_names_a_team_is_not_the_teams() -> None:
    assert told([RESEARCH], owner="platform", team="research", severity="page") == []


@pytest.mark.parametrize(
    ("severity", "heard"),
    [("critical", ["platform", "night"]), ("warning", ["platform"]), ("info", []), ("none", [])],
)
def test_alerts_that_the_chart_brings_reach_the_platform(severity: str, heard: list[str]) -> None:
    assert told([PLATFORM, NIGHT, RESEARCH], severity=severity, alertname="KubeletDown") == heard


def test_what_the_chart_says_of_namespaces_of_teams_is_left_to_our_alerts() -> None:
    of_chart = {"severity": "warning", "alertname": "KubeJobFailed"}
    assert told([PLATFORM], **of_chart, namespace="team-research") == []
    assert told([PLATFORM], **of_chart, namespace="kueue-system") == ["platform"]


def inhibited(source: Mapping[str, str], target: Mapping[str, str]) -> bool:
    """Whether an alert is kept silent by another, as Alertmanager decides it."""
    return any(
        all(matches(m, source) for m in rule["source_matchers"])
        and all(matches(m, target) for m in rule["target_matchers"])
        and all(source.get(label, "") == target.get(label, "") for label in rule["equal"])
        for rule in routing.configuration([])["inhibit_rules"]
    )


def test_a_run_that_waits_for_data_gives_one_ticket() -> None:
    run = {"namespace": "team-llm", "run_id": "hello-1"}
    first, *others = ({"alertname": name, **run} for name in routing.LOADER_ALERTS)
    for one in others:
        assert inhibited(first, one) and not inhibited(one, first)
        assert not inhibited(first, one | {"run_id": "hello-2"})


def test_alerts_that_keep_others_silent_exist() -> None:
    assert set(routing.LOADER_ALERTS) <= {alert.name for alert in alerts.ALERTS}


def test_what_a_team_is_not_told_of_reaches_the_platform() -> None:
    pages_only = receiver("research", team="research", severity=Severity.PAGE)
    heard = [
        told([PLATFORM, pages_only], owner="team", team="research", severity=s) for s in Severity
    ]
    assert "platform" in heard[1] and "research" not in heard[1]
    assert "research" in heard[0]


def test_a_pager_is_silent_about_tickets() -> None:
    assert told([NIGHT], owner="platform", severity="page") == ["night"]
    assert told([NIGHT], owner="platform", severity="ticket") == []


@pytest.mark.parametrize("channel", list(Channel))
def test_no_configuration_holds_a_secret_only_the_file_where_it_is_mounted(
    channel: Channel,
) -> None:
    one = receiver("pager", channel=channel, slack_channel="#gpu")
    found = routing.configuration([one])["receivers"][1]
    (settings,) = next(value for key, value in found.items() if key != "name")
    files = [value for key, value in settings.items() if key.endswith("_file")]
    assert files == ["/etc/alertmanager/secrets/alerting/pager"]
    assert routing.secrets([one, one]) == ["alerting"]
