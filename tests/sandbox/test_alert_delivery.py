"""A real Alertmanager with the platform's routes: who is notified of which alert, by which channel."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from infra.observability import alerts, routing
from infra.observability.routing import Channel, Receiver, Severity
from sandbox import toolchain
from sandbox.ports import LOOPBACK, free_port
from tests.sandbox.node_kit import until

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600)]

TEAM = "research"
RECEIVERS = [
    Receiver(
        name="pager",
        channel=Channel.PAGERDUTY,
        secret="alerting",
        key="pagerduty",
        severity=Severity.PAGE,
    ),
    Receiver(
        name="platform",
        channel=Channel.SLACK,
        secret="alerting",
        key="slack",
        slack_channel="#platform",
    ),
    Receiver(name="research", channel=Channel.WEBHOOK, secret="alerting", key="webhook", team=TEAM),
]
DELIVERED_S = 60.0


@dataclass
class Inbox:
    """What each channel received: the alerts' names and whether they are over, in the channel's own form."""

    received: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def slack(self) -> set[str]:
        """Titles of Slack messages."""
        return {
            attachment["title"].strip()
            for path, body in self.received
            if path == "/slack"
            for attachment in body["attachments"]
        }

    def pager(self) -> dict[str, set[str]]:
        """Events of each incident's text."""
        found: dict[str, set[str]] = {}
        for path, body in self.received:
            if path == "/pager":
                text = (body.get("payload") or {}).get("summary", "").strip()
                found.setdefault(text, set()).add(body["event_action"])
                assert body["routing_key"] == "routing-key-of-the-pager"
        return found

    def webhook(self) -> dict[str, set[str]]:
        """States of each alert."""
        found: dict[str, set[str]] = {}
        for path, body in self.received:
            for alert in body["alerts"] if path == "/webhook" else []:
                found.setdefault(alert["labels"]["alertname"], set()).add(alert["status"])
        return found


@pytest.fixture
def inbox() -> Iterator[tuple[Inbox, str]]:
    """Stands for Slack, PagerDuty and a team's webhook; and its URL."""
    made = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            made.received.append((self.path, json.loads(self.rfile.read(size))))
            self.send_response(202 if self.path == "/pager" else 200)
            self.end_headers()
            self.wfile.write(b"ok" if self.path == "/slack" else b"{}")

        def log_message(self, *_args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made, f"http://{LOOPBACK}:{server.server_port}"
    server.shutdown()
    server.server_close()


@dataclass
class Alertmanager:
    """A running one."""

    url: str

    def send(self, rows: list[dict[str, Any]]) -> None:
        """Post alerts as Prometheus does."""
        request = urllib.request.Request(
            f"{self.url}/api/v2/alerts",
            data=json.dumps(rows).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()

    def states(self) -> dict[str, str]:
        """State of each alert: active, suppressed or unprocessed."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=10) as answer:
            return {row["labels"]["alertname"]: row["status"]["state"] for row in json.load(answer)}


@pytest.fixture
def alertmanager(tmp_path: Path, inbox: tuple[Inbox, str]) -> Iterator[Alertmanager]:
    """With the rendered configuration; only waits are shorter, and PagerDuty's address is the inbox."""
    binary = toolchain.ensure(Console(force_terminal=False), "alertmanager").binaries[
        "alertmanager"
    ]
    secrets = tmp_path / "secrets/alerting"
    secrets.mkdir(parents=True)
    (secrets / "slack").write_text(f"{inbox[1]}/slack")
    (secrets / "webhook").write_text(f"{inbox[1]}/webhook")
    (secrets / "pagerduty").write_text("routing-key-of-the-pager")
    made = routing.configuration(RECEIVERS)
    made["route"] |= {"group_wait": "1s", "group_interval": "1s"}
    made["global"] = {"pagerduty_url": f"{inbox[1]}/pager"}
    text = yaml.safe_dump(made).replace(routing.SECRETS_FOLDER, str(tmp_path / "secrets"))
    (tmp_path / "alertmanager.yml").write_text(text)
    port = free_port()
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [
                *(binary, f"--config.file={tmp_path / 'alertmanager.yml'}"),
                *(f"--storage.path={tmp_path / 'data'}", "--cluster.listen-address="),
                f"--web.listen-address={LOOPBACK}:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    url = f"http://{LOOPBACK}:{port}"

    def ready() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            urllib.request.urlopen(f"{url}/-/ready", timeout=5).close()
        except OSError:
            return False
        return True

    try:
        until(ready, "Alertmanager is ready", DELIVERED_S)
        yield Alertmanager(url)
    finally:
        process.terminate()
        process.wait(20)


def firing(alert: alerts.Alert, **labels: str) -> dict[str, Any]:
    """The alert as Prometheus sends it, about a run of the team."""
    own = {"owner": alert.owner, "severity": alert.severity, "alertname": alert.name}
    texts = {"summary": f"summary of {alert.name}", "description": "details", "runbook": "page"}
    return {
        "labels": {"team": TEAM, "namespace": f"team-{TEAM}", **own, **labels},
        "annotations": texts,
    }


def test_each_alert_reaches_its_owner_and_nobody_else(
    alertmanager: Alertmanager, inbox: tuple[Inbox, str]
) -> None:
    # Each is about a run of its own, so that none inhibits another.
    alertmanager.send([firing(a, run_id=f"run-{a.name.lower()}") for a in alerts.ALERTS])
    of_team = {a.name for a in alerts.ALERTS if a.owner == alerts.TEAM}
    of_platform = {a.name for a in alerts.ALERTS if a.owner != alerts.TEAM}
    pages = {
        a.name for a in alerts.ALERTS if a.owner != alerts.TEAM and a.severity == Severity.PAGE
    }
    assert of_team and pages

    def named(texts: set[str]) -> set[str]:
        return {text.split()[0] for text in texts if text}

    def complete() -> bool:
        got = inbox[0]
        return (
            set(got.webhook()) >= of_team
            and named(got.slack()) >= of_platform
            and named(set(got.pager())) >= pages
        )

    until(complete, "all alerts are delivered", DELIVERED_S)
    assert set(inbox[0].webhook()) == of_team
    assert named(inbox[0].slack()) == of_platform
    assert named(set(inbox[0].pager())) == pages


def test_an_alert_that_is_over_is_closed_in_every_channel(
    alertmanager: Alertmanager, inbox: tuple[Inbox, str]
) -> None:
    page = next(a for a in alerts.ALERTS if a.owner != alerts.TEAM and a.severity == Severity.PAGE)
    ticket = next(a for a in alerts.ALERTS if a.owner == alerts.TEAM)
    rows = [firing(page), firing(ticket)]
    alertmanager.send(rows)
    until(lambda: inbox[0].pager() and inbox[0].webhook(), "both are delivered", DELIVERED_S)
    ended = [
        row | {"startsAt": "2026-01-01T00:00:00Z", "endsAt": "2026-01-01T00:01:00Z"} for row in rows
    ]
    alertmanager.send(ended)
    until(
        lambda: (
            inbox[0].webhook()[ticket.name] >= {"firing", "resolved"}
            and set().union(*inbox[0].pager().values()) >= {"trigger", "resolve"}
        ),
        "both are closed",
        DELIVERED_S,
    )


def test_of_alerts_with_one_cause_the_owner_gets_one(
    alertmanager: Alertmanager, inbox: tuple[Inbox, str]
) -> None:
    by_name = {alert.name: alert for alert in alerts.ALERTS}
    first, *others = routing.LOADER_ALERTS
    # The cause is known before its consequences arrive, as it is after one evaluation of the rules.
    alertmanager.send([firing(by_name[first], run_id="run-1")])
    until(lambda: first in alertmanager.states(), f"{first} is known", DELIVERED_S)
    alertmanager.send([firing(by_name[name], run_id="run-1") for name in others])
    alertmanager.send([firing(by_name[others[-1]], run_id="run-2", namespace="team-other")])
    until(lambda: others[-1] in inbox[0].webhook(), "another run's ticket", DELIVERED_S)
    assert {name: alertmanager.states()[name] for name in others[:-1]} == dict.fromkeys(
        others[:-1], "suppressed"
    )
    got = [
        (alert["labels"]["alertname"], alert["labels"]["run_id"])
        for path, body in inbox[0].received
        for alert in (body["alerts"] if path == "/webhook" else [])
    ]
    assert set(got) == {(first, "run-1"), (others[-1], "run-2")}
