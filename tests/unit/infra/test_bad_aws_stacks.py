"""Mistakes in stack files of a cluster on AWS: each is one issue, all are reported at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from infra.config import parse
from infra.sections.cluster import EksClusterConfig
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.config_issues import check_issues, codes, issues
from tests.unit.infra.example_eks import stack_values as example

Edit = Callable[[dict[str, Any]], object]


def cluster(**changes: Any) -> Edit:
    """Change the section `cluster`."""
    return lambda s: s["cluster"].update(changes)


def network(**changes: Any) -> Edit:
    """Change the section `network`."""
    return lambda s: s["network"].update(changes)


def pool(index: int, **changes: Any) -> Edit:
    """Change a pool."""
    return lambda s: s["nodePools"][index].update(changes)


ONLY_AWS: dict[str, dict[str, Any]] = {
    "aws": {"region": "us-east-1", "account": "111122223333"},
    "network": {"cidr": "10.20.0.0/16", "zones": ["us-east-1a", "us-east-1b"]},
    "interruption": {"imdsSidecar": True},
}


@pytest.mark.parametrize("section", ONLY_AWS)
def test_existing_cluster_rejects_aws_sections(section: str) -> None:
    values = existing() | {section: ONLY_AWS[section]}
    check_issues("aws", f"{section} without AWS", values, f"{section}: aws-only")


def test_existing_cluster_rejects_aws_nodes_storage_and_autoscaler() -> None:
    values = existing() | {"autoscaler": "karpenter"}
    values["nodePools"][0].update(nodes="managed", rootGiB=100)
    values["nodePools"][1].update(rootGiB=100)
    values["storage"] = {"efs": {}, "buckets": {"prefix": "acme"}} | values["storage"]
    places = [code.partition(": ")[0] for code in codes(issues(values))]
    assert places == [
        "storage.buckets",
        "storage.efs",
        "autoscaler",
        "nodePools[0].nodes",
        "nodePools[1].rootGiB",
        "storage",
    ]


def test_all_invalid_values_are_reported_at_once_and_then_all_rules() -> None:
    values = example()
    values["cluster"].update(version="1.20", endpoint=["0.0.0.0/0"], admins=["ada"])
    values["aws"].update(region="mars-1", account="1")
    values["network"].update(nat="none")
    values["nodePools"][0].update(reservation={"kind": "capacity-block", "id": "x"})
    values["storage"]["buckets"].update(prefix="-")
    assert [code.partition(": ")[0] for code in codes(issues(values))] == [
        "cluster.version",
        "cluster.endpoint[0]",
        "cluster.admins[0]",
        "aws.region",
        "aws.account",
        "network.nat",
        "nodePools[0].reservation.id",
        "storage.buckets.prefix",
    ]
    values = example()
    values["network"].update(cidr="10.0.0.0/8", zones=["us-east-1a"])
    values["nodePools"][0].update(nodes="kwok")
    values["autoscaler"] = "none"
    assert [code.partition(": ")[0] for code in codes(issues(values))] == [
        "network.zones",
        "network.cidr",
        "nodePools[2].zone",
        "nodePools[0].nodes",
        "nodePools[1].nodes",
    ]


def test_defaults_are_secure() -> None:
    config = parse(example())
    cluster = config.cluster
    assert isinstance(cluster, EksClusterConfig)
    assert cluster.endpoint == ()
    assert cluster.version == "1.35"
    assert cluster.log_retention_days == 90
    assert config.protected
    assert not config.interruption.imds_sidecar
    assert not parse(existing()).protected


def test_endpoint_may_be_open_to_listed_cidrs() -> None:
    values = example()
    values["cluster"]["endpoint"] = ["203.0.113.0/24", "2001:db8::/32"]
    cluster = parse(values).cluster
    assert isinstance(cluster, EksClusterConfig)
    assert cluster.endpoint == ("203.0.113.0/24", "2001:db8::/32")
    values["cluster"]["endpoint"] = "private"
    assert parse(values).on_aws


def test_cidr_that_the_pools_exactly_fill_is_accepted() -> None:
    values = example()
    network(cidr="10.20.0.0/19")(values)
    pool(1, max=41)(values)
    assert parse(values).on_aws


def test_spot_pool_with_one_instance_type_is_accepted() -> None:
    values = example()
    values["nodePools"][1]["instanceTypes"] = ["p4d.24xlarge"]
    assert parse(values).on_aws
