"""Who is told of which alert."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from infra.platform import alerting
from infra.platform.alerting import Channel, Receiver, Severity


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
    routes = alerting.configuration(receivers)["route"]["routes"]
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


def test_an_alert_of_the_platform_that_names_a_team_goes_to_the_team_only_if_it_is_theirs() -> None:
    assert told([RESEARCH], owner="platform", team="research", severity="page") == []


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


def test_alerts_without_a_severity_of_ours_wake_nobody() -> None:
    assert told([PLATFORM, NIGHT], severity="none", alertname="Watchdog") == []


@pytest.mark.parametrize("channel", list(Channel))
def test_no_configuration_holds_a_secret_only_the_file_where_it_is_mounted(
    channel: Channel,
) -> None:
    one = receiver("pager", channel=channel, slack_channel="#gpu")
    found = alerting.configuration([one])["receivers"][1]
    (settings,) = next(value for key, value in found.items() if key != "name")
    files = [value for key, value in settings.items() if key.endswith("_file")]
    assert files == ["/etc/alertmanager/secrets/alerting/pager"]
    assert alerting.secrets([one, one]) == ["alerting"]
