"""Log shipper and log destination derived from a stack file."""

from __future__ import annotations

from typing import Any

import pytest

from infra.addons.fluent_bit import CloudWatch
from infra.config import add_ons, arguments, parse
from infra.domain import naming
from infra.sections.cluster import EksClusterConfig
from infra.sections.logs import CloudWatchConfig, LokiConfig
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.example_eks import stack_values as eks


def shipped(values: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """Add a shipper that the stack installs to the values."""
    values["operators"]["fluentBit"] = {"provided": False}
    return values | sections


def test_aws_logs_go_to_a_log_group_of_the_cluster_by_default() -> None:
    config = parse(shipped(eks()))
    assert isinstance(config.cluster, EksClusterConfig)
    group = CloudWatch(region="us-east-1", group="/trainyard/training/runs")
    assert arguments.log_shipper(config).destination == group
    assert arguments.log_group(config) == CloudWatchConfig()
    shorter = parse(shipped(eks(), logs={"cloudwatch": {"retentionDays": 30}}))
    kept = arguments.log_group(shorter)
    assert kept is not None and kept.retention_days == 30


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


def test_team_logs_are_shipped_from_every_node_that_runs_may_use() -> None:
    config = parse(shipped(eks()))
    args = arguments.log_shipper(config)
    assert args.namespaces == tuple(naming.namespace(team.name) for team in config.teams)
    tolerated = {(t["key"], t["value"]) for t in args.tolerations}
    assert tolerated == {(t.key, t.value) for pool in config.pools for t in pool.taints}
    assert len(args.tolerations) == len(tolerated)


@pytest.mark.parametrize("provided", [True, False])
def test_shipper_metrics_are_scraped_where_the_operator_exists(provided: bool) -> None:
    values = shipped(eks())
    assert not arguments.log_shipper(parse(values)).monitored
    values["operators"]["kubePrometheusStack"] = {"provided": provided}
    assert arguments.log_shipper(parse(values)).monitored


def test_stack_that_lists_the_shipper_installs_it() -> None:
    names = [plan.add_on for plan in add_ons.args(parse(shipped(eks()))).plans]
    assert "fluentBit" in names
    assert "fluentBit" not in [plan.add_on for plan in add_ons.args(parse(eks())).plans]
