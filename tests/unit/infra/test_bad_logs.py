"""Mistakes in `logs` and `restoreDrill`: each is one issue."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from infra.config import parse
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.config_issues import check_issues
from tests.unit.infra.example_eks import stack_values as eks

Edit = Callable[[dict[str, Any]], object]

LOKI = {"url": "https://logs.example.com"}
SHIPPED = {"fluentBit": {"provided": False}}


def shipping(**logs: Any) -> Edit:
    """Install the shipper and set the section."""
    return lambda s: (s["operators"].update(SHIPPED), s.update(logs=logs))


def drill(team: int = 1, **section: Any) -> Edit:
    """Set the drill of a team; the second team is the production team."""
    return lambda s: s["teams"][team].update(restoreDrill=section)


BAD: dict[str, tuple[Edit, str]] = {
    "no place": (
        shipping(),
        "logs: log-destination",
    ),
    "two places": (
        shipping(loki=LOKI, cloudwatch={}),
        "logs: log-destination",
    ),
    "CloudWatch without AWS": (
        shipping(cloudwatch={}),
        "logs.cloudwatch: aws-only",
    ),
    "a place that nobody ships to": (
        lambda s: s.update(logs={"loki": LOKI}),
        "logs: log-shipper-missing",
    ),
    "a shipper of somebody else's": (
        lambda s: (
            s["operators"].update(fluentBit={"provided": True}),
            s.update(logs={"loki": LOKI}),
        ),
        "logs: log-shipper-missing",
    ),
    "a shipper without a place": (
        lambda s: s["operators"].update(SHIPPED),
        "logs: log-destination",
    ),
    "logs in plain text": (
        shipping(loki={"url": "http://logs.example.com"}),
        "logs.loki.url: plaintext-url",
    ),
    "a password in the URL": (
        shipping(loki={"url": "https://user:word@logs.example.com"}),
        "logs.loki.url: url",
    ),
    "something else than a URL": (
        shipping(loki={"url": "logs.example.com:8443"}),
        "logs.loki.url: url",
    ),
    "a drill in an unknown image": (
        drill(image="trainr"),
        "teams[1].restoreDrill.image: unknown-name",
    ),
    "a drill in an image from elsewhere": (
        lambda s: (
            s.update(registries=["registry.example.com/trainer"]),
            drill(enabled=True, image="docker.io/trainer@sha256:" + "1" * 64)(s),
        ),
        "teams[1].restoreDrill.image: registry-not-allowed",
    ),
    "a drill at no time": (
        drill(schedule="nightly"),
        "teams[1].restoreDrill.schedule: cron-schedule",
    ),
    "a drill of no run": (
        drill(runs=0),
        "teams[1].restoreDrill.runs: out-of-range",
    ),
    "a drill in no bucket": (
        drill(stores=["/checkpoints"]),
        "teams[1].restoreDrill.stores[0]: s3-uri",
    ),
    "a drill that no node could hold": (
        drill(largest="64Gi"),
        "teams[1].restoreDrill.largest: restore-drill-too-large",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_one_issue(name: str) -> None:
    edit, expected = BAD[name]
    values = copy.deepcopy(existing())
    edit(values)
    check_issues("logs", name, values, expected)


@pytest.mark.parametrize(
    "url", ["https://logs.example.com/in", "http://loki.observing.svc:3100", "https://10.0.0.7:443"]
)
def test_log_destination_over_tls_or_inside_the_cluster_is_accepted(url: str) -> None:
    values = existing()
    shipping(loki={"url": url})(values)
    assert parse(values).logs is not None


def test_aws_logs_go_to_cloudwatch_by_default() -> None:
    values = eks()
    values["operators"].update(SHIPPED)
    assert parse(values).logs is None
    values["logs"] = {"cloudwatch": {"retentionDays": 30}}
    assert parse(values).logs is not None


def test_drills_are_opt_in_for_research_and_opt_out_for_production() -> None:
    values = existing()
    drill(0, enabled=True)(values)
    drill(1, enabled=False, image="none")(values)
    parse(values)
