"""A real Alertmanager with the platform's routes: who is notified of which alert, by which channel."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from infra.observability import alerts, monitors, routing, series
from infra.sections.observability import Channel, ReceiverConfig, Severity
from sandbox import toolchain
from sandbox.ports import LOOPBACK, free_port
from tests.sandbox.node_kit import until
from trainyard.culprits import Culprit
from trainyard.prometheus import RunCollector, start_server
from trainyard.run_logs import Totals

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600), pytest.mark.long(11)]

TEAM = "research"
RECEIVERS = [
    ReceiverConfig(
        name="pager",
        kind=Channel.PAGERDUTY,
        secret_name="alerting",
        key="pagerduty",
        severity=Severity.PAGE,
    ),
    ReceiverConfig(
        name="platform",
        kind=Channel.SLACK,
        secret_name="alerting",
        key="slack",
        channel="#platform",
    ),
    ReceiverConfig(
        name="research", kind=Channel.WEBHOOK, secret_name="alerting", key="webhook", team=TEAM
    ),
]
DELIVERED_S = 60.0
PAGED_S = 25.0
"""Shorter than any interval and wait but those of ranks that were named."""


@dataclass
class Inbox:
    """What each channel received: the alerts' names and whether they are over, in the channel's own form."""

    received: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def slack(self) -> set[str]:
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
    url: str

    def send(self, rows: list[dict[str, Any]]) -> None:
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
    """With the rendered configuration and shorter waits."""
    with running_alertmanager(tmp_path, inbox[1], group_wait="1s", group_interval="1s") as one:
        yield one


def binary(name: str) -> Path:
    return toolchain.ensure(Console(force_terminal=False), name).binaries[name]


@contextlib.contextmanager
def running_alertmanager(tmp_path: Path, inbox: str, **waits: str) -> Iterator[Alertmanager]:
    """With the rendered configuration, except for these waits; PagerDuty's address is the inbox."""
    secrets = tmp_path / "secrets/alerting"
    secrets.mkdir(parents=True)
    (secrets / "slack").write_text(f"{inbox}/slack")
    (secrets / "webhook").write_text(f"{inbox}/webhook")
    (secrets / "pagerduty").write_text("routing-key-of-the-pager")
    made = routing.configuration(RECEIVERS)
    made["route"] |= waits
    made["global"] = {"pagerduty_url": f"{inbox}/pager"}
    text = yaml.safe_dump(made).replace(routing.SECRETS_FOLDER, str(tmp_path / "secrets"))
    (tmp_path / "alertmanager.yml").write_text(text)
    command = [
        *(str(binary("alertmanager")), f"--config.file={tmp_path / 'alertmanager.yml'}"),
        *(f"--storage.path={tmp_path / 'data'}", "--cluster.listen-address="),
    ]
    with running_server(command, tmp_path / "alertmanager.log") as url:
        yield Alertmanager(url)


@contextlib.contextmanager
def running_server(command: list[str], log: Path) -> Iterator[str]:
    """Its URL, once it is ready."""
    address = f"{LOOPBACK}:{free_port()}"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, f"--web.listen-address={address}"], stdout=output, stderr=subprocess.STDOUT
        )

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"http://{address}/-/ready", timeout=5).close()
        except OSError:
            return False
        return True

    try:
        until(ready, f"{Path(command[0]).name} is ready", DELIVERED_S)
        yield f"http://{address}"
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
    first, second = routing.LOADER_ALERTS
    # The cause is known before its consequences arrive, as it is after one evaluation of the rules.
    alertmanager.send([firing(by_name[first], run_id="run-1")])
    until(lambda: first in alertmanager.states(), f"{first} is known", DELIVERED_S)
    alertmanager.send([firing(by_name[second], run_id="run-1")])
    until(lambda: alertmanager.states().get(second) == "suppressed", "it is inhibited", DELIVERED_S)
    alertmanager.send([firing(by_name[second], run_id="run-2", namespace="team-other")])
    both = {first, second}
    until(lambda: both <= set(inbox[0].webhook()), "the cause, and another run's", DELIVERED_S)
    got = [
        (alert["labels"]["alertname"], alert["labels"]["run_id"])
        for path, body in inbox[0].received
        for alert in (body["alerts"] if path == "/webhook" else [])
    ]
    assert set(got) == {(first, "run-1"), (second, "run-2")}


@contextlib.contextmanager
def running_prometheus(tmp_path: Path, run: str, alertmanager: str) -> Iterator[str]:
    """Scrapes a run at an address as the PodMonitor says, with the rendered rules; all else every 30 s."""
    _, endpoint = monitors.runs(30)["spec"]["podMetricsEndpoints"]
    labels = {"namespace": f"team-{TEAM}", "pod": "hello-0", "node": "n0"}
    target = {"targets": [run], "labels": {**labels, "run_id": RUN, "team": TEAM}}
    job = {"job_name": series.CULPRITS_JOB, "static_configs": [target]}
    job |= {"metrics_path": endpoint["path"], "scrape_interval": endpoint["interval"]}
    managers = [{"static_configs": [{"targets": [alertmanager.removeprefix("http://")]}]}]
    (tmp_path / "rules.json").write_text(json.dumps(alerts.rule_file()))
    config = {
        "global": {"scrape_interval": "30s", "scrape_timeout": "2s", "evaluation_interval": "30s"},
        "rule_files": ["rules.json"],
        "scrape_configs": [job],
        "alerting": {"alertmanagers": managers},
    }
    (tmp_path / "prometheus.json").write_text(json.dumps(config))
    command = [
        *(str(binary("prometheus")), f"--config.file={tmp_path / 'prometheus.json'}"),
        f"--storage.tsdb.path={tmp_path / 'samples'}",
    ]
    with running_server(command, tmp_path / "prometheus.log") as url:
        yield url


RUN = "hello-v1-0a1b2c3d"


def test_a_rank_that_is_named_is_paged_before_other_alerts_are_even_evaluated(
    tmp_path: Path, inbox: tuple[Inbox, str], record_property: Callable[[str, object], None]
) -> None:
    run, port = RunCollector(Totals(), {}, folder=tmp_path, attempt=1, steps=None), free_port()
    close = start_server(run, LOOPBACK, port)
    up = urllib.parse.quote(f'up{{job="{series.CULPRITS_JOB}"}} == 1')

    with (
        running_alertmanager(tmp_path, inbox[1]) as alertmanager,
        running_prometheus(tmp_path, f"{LOOPBACK}:{port}", alertmanager.url) as prometheus,
    ):

        def scraped() -> Any:
            with urllib.request.urlopen(f"{prometheus}/api/v1/query?query={up}", timeout=5) as got:
                return json.load(got)["data"]["result"]

        until(scraped, "the run is scraped", DELIVERED_S)
        named = time.time()
        run.add_culprit(
            Culprit(
                symptom="hung", rank=3, node="n7", pod="p", step=9, attempt=1, time=named, what=""
            )
        )
        until(lambda: inbox[0].pager() and inbox[0].slack(), "the platform is told", PAGED_S)
        record_property("seconds", time.time() - named)
    close()
    assert inbox[0].pager() == {f"RankHung {RUN}": {"trigger"}}
    (text,) = [
        a["text"]
        for path, body in inbox[0].received
        if path == "/slack"
        for a in body["attachments"]
    ]
    assert "rank 3, node n7" in text
