"""One mistake in a production stack is one issue, without follow-on issues of other checks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from infra.cli.render import ROOT
from infra.config import stack_values
from tests.unit.infra.config_issues import codes, issues

STACK = stack_values(ROOT / "Pulumi.prod.yaml")

MISTAKES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    # A misspelt key is not missing, too; nor is what a section requires that is missing as a whole.
    (lambda s: s["network"].update(zons=s["network"].pop("zones")), "network.zons: unknown-key"),
    (
        lambda s: s["storage"]["buckets"].update(prefx=s["storage"]["buckets"].pop("prefix")),
        "storage.buckets.prefx: unknown-key",
    ),
    (
        lambda s: s["operators"].update(fluentBit={"provded": False}),
        "operators.fluentBit.provded: unknown-key",
    ),
    (lambda s: s.pop("operators"), "operators: missing"),
    (lambda s: s.pop("cluster"), "cluster: missing"),
    (lambda s: s.pop("nodePools"), "nodePools: missing"),
    # The shape of a section is not known without the key that selects it.
    (lambda s: s["cluster"].update(provider="ekks"), "cluster.provider: unknown-value"),
    (lambda s: s["cluster"].pop("provider"), "cluster.provider: missing"),
    (lambda s: s.update(cluster="eks"), "cluster: wrong-type"),
    # An invalid element does not make its list too short.
    (lambda s: s["nodePools"][0].update(name="On_demand"), "nodePools[0].name: dns-label"),
    (
        lambda s: s["nodePools"][0].update(instanceTypes=["p4d.24xlrge"]),
        "nodePools[0].instanceTypes[0]: unknown-instance-type",
    ),
    (lambda s: s["nodePools"][0].update(instanceTypes=[]), "nodePools[0].instanceTypes: too-few"),
    (
        lambda s: s["nodePools"][1].update(reservation={"kind": "capacity-block", "id": "cr-1"}),
        "nodePools[1].reservation.id: reservation-id",
    ),
    (
        lambda s: s["teams"][0].update(guaranteed={"ondemand": "4", "block": 8}),
        "teams[0].guaranteed.ondemand: wrong-type",
    ),
    (
        lambda s: s["teams"][0].update(quota={"cpu": 2048, "memory": "24Ti", "gpus": 96}),
        "teams[0].quota.cpu: wrong-type",
    ),
    (lambda s: s["aws"].update(account=1402433619), "aws.account: account-id"),
    (lambda s: s["cluster"].update(endpoint="public"), "cluster.endpoint: wrong-type"),
    # Of rules, one reports a mistake, and those that depend on it do not.
    (lambda s: s.pop("aws"), "aws: missing"),
    (lambda s: s.pop("network"), "network: missing"),
    (lambda s: s["storage"].pop("buckets"), "storage.buckets: missing"),
    (
        lambda s: s["nodePools"][0].update(zone="us-east-1z"),
        "nodePools[0].zone: zone-outside-network",
    ),
    (
        lambda s: s["operators"].update(gpuOperator=None),
        "operators.gpuOperator: gpu-plugin-missing",
    ),
    (
        lambda s: s["teams"][0].update(guaranteed={"ondmand": 4, "block": 8}),
        "teams[0].guaranteed.ondmand: unknown-name",
    ),
    (lambda s: s.pop("images"), "validation.image: unknown-name"),
    (
        lambda s: s["cluster"].update(systemNodes={"instanceTypes": ["m6i.4xlrge"]}),
        "cluster.systemNodes.instanceTypes[0]: system-node-type",
    ),
]


@pytest.mark.parametrize(("edit", "expected"), MISTAKES)
def test_each_mistake_is_one_issue(edit: Callable[[dict[str, Any]], object], expected: str) -> None:
    values = copy.deepcopy(STACK)
    edit(values)
    assert codes(issues(values)) == [expected]


def test_numbers_and_versions_get_no_spelling_suggestion() -> None:
    values = copy.deepcopy(STACK)
    values["cluster"]["version"] = "1.31"
    [line] = issues(values).lines
    assert "did you mean" not in line


def test_unquoted_account_id_is_not_echoed_as_another_number() -> None:
    values = copy.deepcopy(STACK)
    values["aws"]["account"] = 0o12345670123
    [line] = issues(values).lines
    assert str(0o12345670123) not in line
    assert "quotes" in line
