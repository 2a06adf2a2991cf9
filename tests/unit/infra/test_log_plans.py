"""Log shipper and log destination derived from a stack file."""

from __future__ import annotations

from typing import Any

from infra.config import arguments, parse
from infra.sections.logs import LokiConfig
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.example_eks import stack_values as eks


def shipped(values: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """Add a shipper that the stack installs to the values."""
    values["operators"]["fluentBit"] = {"provided": False}
    return values | sections


def test_other_log_destinations_create_no_log_group() -> None:
    config = parse(shipped(eks(), logs={"loki": {"url": "https://logs.example.com/in/"}}))
    assert arguments.log_group(config) is None
    found = arguments.log_shipper(config).destination
    assert isinstance(found, LokiConfig)
    assert (found.host, found.port, found.path, found.tls) == ("logs.example.com", 443, "/in", True)


def test_loki_inside_the_cluster_is_reached_by_its_service() -> None:
    loki = {"url": "http://loki.observing.svc:3100", "tenant": "training", "credentials": "login"}
    config = parse(shipped(existing(), logs={"loki": loki}))
    found = arguments.log_shipper(config).destination
    assert isinstance(found, LokiConfig)
    assert (found.host, found.port, found.path) == ("loki.observing.svc", 3100, "")
    assert (found.tls, found.namespace) == (False, "observing")
