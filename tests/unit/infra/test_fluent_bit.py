"""Log shipping: input, filters, metrics, output and permissions of the shipper."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.addons import fluent_bit_pipeline
from infra.addons.fluent_bit import (
    CloudWatch,
    FluentBitArgs,
    plan,
)
from infra.addons.fluent_bit_pipeline import Destination
from infra.observability import series
from infra.observability.log_patterns import COUNTED, LOG_PATTERNS
from infra.sections.logs import LokiConfig

CLOUDWATCH = CloudWatch(region="us-east-1", group="/trainyard/training/runs")
OUTSIDE = LokiConfig(url="https://logs.example.com:8443/in", credentials="log-store")
INSIDE = LokiConfig(url="http://loki.observing.svc:3100", tenant="training")
DESTINATIONS: dict[str, Destination] = {
    "cloudwatch": CLOUDWATCH,
    "loki inside": INSIDE,
    "loki outside": OUTSIDE,
}

Section = tuple[str, list[tuple[str, str]]]


def sections(text: str) -> list[Section]:
    """Parse fluent-bit's classic format: kind and settings; keys may repeat."""
    found: list[Section] = []
    for line in text.splitlines():
        if line.startswith("["):
            found.append((line.strip("[]"), []))
        elif line.strip():
            key, _, value = line.strip().partition(" ")
            found[-1][1].append((key, value))
    return found


def values(destination: Destination = CLOUDWATCH, **changes: Any) -> dict[str, Any]:
    args = {"namespaces": ("team-research", "team-production"), **changes}
    return dict(plan(FluentBitArgs(destination=destination, **args)).values)


def filters(name: str, destination: Destination = CLOUDWATCH) -> list[list[tuple[str, str]]]:
    found = sections(values(destination)["config"]["filters"])
    return [settings for _, settings in found if ("Name", name) in settings]


@pytest.mark.parametrize("name", COUNTED)
def test_every_counted_pattern_has_the_name_that_alerts_use(name: str) -> None:
    [settings] = [s for s in filters("log_to_metrics") if ("Alias", f"count-{name}") in s]
    known = dict(settings)
    parts = [known[f"Metric_{part}"] for part in ("Namespace", "Subsystem", "Name")]
    assert "_".join(parts) == series.LOG_MATCHES.name
    # fluent-bit uses only the first of several expressions.
    expression = fluent_bit_pipeline.as_setting(LOG_PATTERNS[name].expression)
    assert [v for k, v in settings if k == "Regex"] == [f"log {expression}"]
    field = known["Add_Label"].removeprefix("pattern ")
    assert ("Record", f"{field} {name}") in filters("record_modifier")[0]
    labels = {"pattern"} | {value for key, value in settings if key == "Label_Field"}
    assert labels >= set(series.LOG_MATCHES.labels)
    assert labels <= {"pattern", *fluent_bit_pipeline.KEPT}


@pytest.mark.parametrize("name", COUNTED)
def test_expression_is_unchanged_by_helm_and_fluent_bit(name: str) -> None:
    expression = fluent_bit_pipeline.as_setting(LOG_PATTERNS[name].expression)
    # A template, a variable, a comment, delimiters, Python's own groups.
    assert not re.search(r"\{\{|\$\{|\n|\(\?P", expression)
    assert not expression.startswith(("/", " ", "#")) and not expression.endswith(" ")


def test_loki_gets_streams_by_run_and_its_tenant() -> None:
    (_, first), _ = sections(values(DESTINATIONS["loki inside"])["config"]["outputs"])
    settings = dict(first)
    assert settings["uri"] == "/loki/api/v1/push"
    assert settings["tenant_id"] == "training"
    assert "run_id=$run_id" in settings["labels"]
    assert "tls" not in settings


def test_credentials_come_from_an_existing_secret_and_not_from_values() -> None:
    found = values(DESTINATIONS["loki outside"])
    assert [e["valueFrom"]["secretKeyRef"] for e in found["env"]] == [
        {"name": "log-store", "key": "username"},
        {"name": "log-store", "key": "password"},
    ]
    (_, first), _ = sections(found["config"]["outputs"])
    assert dict(first)["http_passwd"] == "${LOGS_PASSWORD}"
    assert dict(first)["tls.verify"] == "On"
    assert values()["env"] == []


def policy(destination: Destination) -> dict[str, Any]:
    args = FluentBitArgs(namespaces=("team-research",), destination=destination)
    deny, own = plan(args).before
    assert deny["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    found: dict[str, Any] = own["spec"]
    return found


@pytest.mark.parametrize(
    ("name", "sends"),
    [
        (
            "cloudwatch",
            {
                "to": [{"ipBlock": {"cidr": "169.254.170.23/32"}}],
                "ports": [{"protocol": "TCP", "port": 80}],
            },
        ),
        (
            "loki inside",
            {
                "to": [
                    {
                        "namespaceSelector": {
                            "matchLabels": {"kubernetes.io/metadata.name": "observing"}
                        }
                    }
                ]
            },
        ),
        ("loki outside", {"ports": [{"protocol": "TCP", "port": 8443}]}),
    ],
)
def test_shipper_reaches_only_its_destination_dns_and_the_api_server(
    name: str, sends: dict[str, Any]
) -> None:
    names, api, last = policy(DESTINATIONS[name])["egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert {port["port"] for port in api["ports"]} == {443, 6443}
    assert last == sends


def test_trailing_space_of_an_expression_is_kept() -> None:
    expression = fluent_bit_pipeline.as_setting("not written: ")
    assert not expression.endswith(" ")
    assert re.search(expression, "not written: disk") and not re.search(expression, "not written:x")


def test_every_config_value_is_on_one_line() -> None:
    for destination in DESTINATIONS.values():
        for text in fluent_bit_pipeline.config(("team-a",), destination).values():
            for line in text.splitlines():
                assert re.fullmatch(r"(\[[A-Z]+\]|    \S+ \S.*|)", line), line
