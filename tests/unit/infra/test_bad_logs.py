"""Mistakes in `logs` and `restoreDrill`: each is one exact line."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from infra.config import ConfigError, parse
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.example_eks import stack_values as eks

Edit = Callable[[dict[str, Any]], object]

LOKI = {"url": "https://logs.example.com"}
SHIPPED = {"fluentBit": {"provided": False}}


def shipping(**logs: Any) -> Edit:
    """Installs the shipper and writes the section."""
    return lambda s: (s["operators"].update(SHIPPED), s.update(logs=logs))


def drill(team: int = 1, **section: Any) -> Edit:
    """Writes a team's drill; the second team is the production team."""
    return lambda s: s["teams"][team].update(restoreDrill=section)


BAD: dict[str, tuple[Edit, str]] = {
    "no place": (
        shipping(),
        "logs: got no place; allowed one of cloudwatch, loki and http; add one, or remove logs",
    ),
    "two places": (
        shipping(loki=LOKI, http=LOKI),
        "logs: got loki and http; allowed one of cloudwatch, loki and http; remove the others",
    ),
    "CloudWatch without AWS": (
        shipping(cloudwatch={}),
        "logs.cloudwatch: got what only a cluster on AWS has; allowed loki or http where "
        "cluster.provider is existing; name one of them",
    ),
    "a place that nobody ships to": (
        lambda s: s.update(logs={"loki": LOKI}),
        "logs: got a place for logs that nobody ships; allowed it with operators.fluentBit: "
        "{provided: false}; add that to operators, or remove logs",
    ),
    "a shipper of somebody else's": (
        lambda s: (
            s["operators"].update(fluentBit={"provided": True}),
            s.update(logs={"loki": LOKI}),
        ),
        "logs: got a place for logs that nobody ships; allowed it with operators.fluentBit: "
        "{provided: false}; add that to operators, or remove logs",
    ),
    "a shipper without a place": (
        lambda s: s["operators"].update(SHIPPED),
        "logs: got nothing; allowed loki or http, for fluentBit has nowhere to ship to; add one, "
        "or remove fluentBit from operators",
    ),
    "logs in plain text": (
        shipping(loki={"url": "http://logs.example.com"}),
        "logs.loki.url: got 'http://logs.example.com'; allowed https://..., or "
        "http://SERVICE.NAMESPACE.svc in this cluster: logs of runs do not travel in plain text; "
        "use https",
    ),
    "a password in the URL": (
        shipping(http={"url": "https://user:word@logs.example.com"}),
        "logs.http.url: got 'https://user:word@logs.example.com'; allowed "
        "https://HOST[:PORT][/PATH] without a user, whose name and password are in the Secret that "
        "credentials names; correct it",
    ),
    "something else than a URL": (
        shipping(http={"url": "logs.example.com:8443"}),
        "logs.http.url: got 'logs.example.com:8443'; allowed https://HOST[:PORT][/PATH] without a "
        "user, whose name and password are in the Secret that credentials names; correct it",
    ),
    "a drill in an unknown image": (
        drill(image="trainr"),
        "teams[1].restoreDrill.image: got 'trainr'; allowed trainer (names in images), or "
        "REPOSITORY@sha256:DIGEST; did you mean trainer?",
    ),
    "a drill in an image from elsewhere": (
        lambda s: (
            s.update(registries=["registry.example.com/trainer"]),
            drill(enabled=True, image="docker.io/trainer@sha256:" + "1" * 64)(s),
        ),
        "teams[1].restoreDrill.image: got 'docker.io/trainer'; allowed images from registries: "
        "registry.example.com/trainer; add its registry to registries, or push it to one of them",
    ),
    "a drill at no time": (
        drill(schedule="nightly"),
        "teams[1].restoreDrill.schedule: got 'nightly'; allowed minute, hour, day, month and "
        "weekday in numbers, 0 for Sunday, such as 17 3 * * *; correct it",
    ),
    "a drill of no run": (
        drill(runs=0),
        "teams[1].restoreDrill.runs: got 0; allowed at least 1; change it",
    ),
    "a drill in no bucket": (
        drill(stores=["/checkpoints"]),
        "teams[1].restoreDrill.stores[0]: got '/checkpoints'; allowed s3://BUCKET/PREFIX; "
        "correct it",
    ),
    "a drill that no node could hold": (
        drill(largest="64Gi"),
        "teams[1].restoreDrill.largest: got '64Gi'; allowed at most 52Gi, for the nodes of cpu and "
        "the team's quota have no more memory; lower it, or choose larger types for the CPU pool",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_in_logs_and_drills_is_one_exact_line(name: str) -> None:
    edit, expected = BAD[name]
    values = copy.deepcopy(existing())
    edit(values)
    with pytest.raises(ConfigError) as caught:
        parse(values)
    assert caught.value.lines == (expected,)


@pytest.mark.parametrize(
    "url", ["https://logs.example.com/in", "http://loki.observing.svc:3100", "https://10.0.0.7:443"]
)
def test_a_place_over_tls_or_inside_the_cluster_is_taken(url: str) -> None:
    values = existing()
    shipping(http={"url": url})(values)
    assert parse(values).logs is not None


def test_on_aws_logs_go_to_cloudwatch_unless_somebody_says_otherwise() -> None:
    values = eks()
    values["operators"].update(SHIPPED)
    assert parse(values).logs is None
    values["logs"] = {"cloudwatch": {"retentionDays": 30}}
    assert parse(values).logs is not None


def test_a_research_team_may_ask_for_a_drill_and_production_may_do_without() -> None:
    values = existing()
    drill(0, enabled=True)(values)
    drill(1, enabled=False, image="none")(values)
    parse(values)
