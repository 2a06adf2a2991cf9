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
    (lambda s: s["nodePools"][0].update(nodes="manged"), "nodePools[0].nodes: unknown-value"),
    (lambda s: s["nodePools"][1].update(nodes="xyz"), "nodePools[1].nodes: unknown-value"),
    (
        lambda s: s["nodePools"][0].update(nods=s["nodePools"][0].pop("nodes")),
        "nodePools[0].nods: unknown-key",
    ),
    (lambda s: s["nodePools"][0].update(max="8"), "nodePools[0].max: wrong-type"),
    (lambda s: s["nodePools"][0].update(max=-8), "nodePools[0].max: out-of-range"),
    (lambda s: s["nodePools"][0].pop("max"), "nodePools[0].max: missing"),
    (lambda s: s["nodePools"][0].pop("name"), "nodePools[0].name: missing"),
    (lambda s: s["nodePools"][0].update(name="On_demand"), "nodePools[0].name: dns-label"),
    (
        lambda s: s["nodePools"][0].update(instanceTypes="p4d.24xlarge"),
        "nodePools[0].instanceTypes: wrong-type",
    ),
    (
        lambda s: s["nodePools"][0].update(instanceTypes=["p4d.24xlrge"]),
        "nodePools[0].instanceTypes[0]: unknown-instance-type",
    ),
    (lambda s: s["nodePools"][0].pop("instanceTypes"), "nodePools[0].instanceTypes: missing"),
    (lambda s: s["nodePools"][0].update(instanceTypes=[]), "nodePools[0].instanceTypes: too-few"),
    (
        lambda s: s["nodePools"][0].update(capacity="ondemand"),
        "nodePools[0].capacity: unknown-value",
    ),
    (lambda s: s["nodePools"][0].update(capacity="cheap"), "nodePools[0].capacity: unknown-value"),
    (lambda s: s["nodePools"][0].update(network="eaf"), "nodePools[0].network: unknown-value"),
    (lambda s: s["nodePools"][0].update(network=True), "nodePools[0].network: unknown-value"),
    (
        lambda s: s["nodePools"][0].update(zone="us-east-1z"),
        "nodePools[0].zone: zone-outside-network",
    ),
    (lambda s: s["nodePools"][0].pop("zone"), "nodePools[0].zone: missing"),
    (lambda s: s["nodePools"][3].update(workload="cppu"), "nodePools[3].workload: unknown-value"),
    (
        lambda s: s["nodePools"][3].update(worklod=s["nodePools"][3].pop("workload")),
        "nodePools[3].worklod: unknown-key",
    ),
    (
        lambda s: s["nodePools"][1].update(
            reservation={"kind": "capacity-blok", "id": "cr-0123456789abcdef0"}
        ),
        "nodePools[1].reservation.kind: unknown-value",
    ),
    (
        lambda s: s["nodePools"][1].update(reservation={"kind": "capacity-block", "id": "cr-1"}),
        "nodePools[1].reservation.id: reservation-id",
    ),
    (
        lambda s: s["nodePools"][1].update(reservation="cr-1"),
        "nodePools[1].reservation: wrong-type",
    ),
    (lambda s: s["cluster"].update(provider="ekks"), "cluster.provider: unknown-value"),
    (lambda s: s["cluster"].update(provider="gke"), "cluster.provider: unknown-value"),
    (lambda s: s["cluster"].pop("provider"), "cluster.provider: missing"),
    (lambda s: s["cluster"].update(version="1.31"), "cluster.version: unknown-value"),
    (lambda s: s["cluster"].update(version=1.35), "cluster.version: unknown-value"),
    (
        lambda s: s["cluster"].update(vesion=s["cluster"].pop("version")),
        "cluster.vesion: unknown-key",
    ),
    (lambda s: s["aws"].update(account=1402433619), "aws.account: account-id"),
    (lambda s: s["aws"].update(account="1111"), "aws.account: account-id"),
    (lambda s: s["aws"].update(region="us-est-1"), "aws.region: unknown-name"),
    (lambda s: s["aws"].pop("region"), "aws.region: missing"),
    (lambda s: s.pop("aws"), "aws: missing"),
    (lambda s: s.update(aws=[]), "aws: wrong-type"),
    (lambda s: s["network"].update(cidr="10.30.0.0/33"), "network.cidr: cidr"),
    (lambda s: s["network"].update(zones="us-east-1a"), "network.zones: wrong-type"),
    (lambda s: s["network"].update(zons=s["network"].pop("zones")), "network.zons: unknown-key"),
    (lambda s: s.pop("network"), "network: missing"),
    (lambda s: s.update(autoscaler="karpentr"), "autoscaler: unknown-value"),
    (lambda s: s.update(autoscaler="foo"), "autoscaler: unknown-value"),
    (lambda s: s.update(autoscaler=True), "autoscaler: unknown-value"),
    (lambda s: s["storage"].update(fsx={}), "storage.fsx.zone: missing"),
    (lambda s: s["storage"].update(fsx="yes"), "storage.fsx: wrong-type"),
    (lambda s: s["storage"].update(fxs=s["storage"].pop("fsx")), "storage.fxs: unknown-key"),
    (
        lambda s: s["storage"]["fsx"].update(throughputPerTiB=251),
        "storage.fsx.throughputPerTiB: unknown-value",
    ),
    (lambda s: s["storage"].update(checkpoints="5TB"), "storage.checkpoints: quantity"),
    (lambda s: s["storage"].pop("buckets"), "storage.buckets: missing"),
    (
        lambda s: s["storage"]["buckets"].update(prefx=s["storage"]["buckets"].pop("prefix")),
        "storage.buckets.prefx: unknown-key",
    ),
    (
        lambda s: s["operators"].update(keue=s["operators"].pop("kueue")),
        "operators.keue: unknown-key",
    ),
    (lambda s: s["operators"].update(kueue=False), "operators.kueue: wrong-type"),
    (
        lambda s: s["operators"].update(kueue={"provided": "false"}),
        "operators.kueue.provided: wrong-type",
    ),
    (
        lambda s: s["operators"].update(gpuOperator=None),
        "operators.gpuOperator: gpu-plugin-missing",
    ),
    (
        lambda s: s["operators"].update(gpuoperator=s["operators"].pop("gpuOperator")),
        "operators.gpuoperator: unknown-key",
    ),
    (
        lambda s: s["operators"].update(fluentBit={"provded": False}),
        "operators.fluentBit.provded: unknown-key",
    ),
    (lambda s: s["operators"].update(fluentBit=True), "operators.fluentBit: wrong-type"),
    (lambda s: s.pop("operators"), "operators: missing"),
    (lambda s: s["teams"][0].update(tier="prodction"), "teams[0].tier: unknown-value"),
    (lambda s: s["teams"][0].update(tier="gold"), "teams[0].tier: unknown-value"),
    (
        lambda s: s["teams"][0].update(guaranteed={"ondmand": 4, "block": 8}),
        "teams[0].guaranteed.ondmand: unknown-name",
    ),
    (
        lambda s: s["teams"][0].update(guaranteed={"ondemand": "4", "block": 8}),
        "teams[0].guaranteed.ondemand: wrong-type",
    ),
    (lambda s: s["teams"][0].update(guaranteed=4), "teams[0].guaranteed: wrong-type"),
    (
        lambda s: s["teams"][0].update(quota={"cpu": 2048, "memory": "24Ti", "gpus": 96}),
        "teams[0].quota.cpu: wrong-type",
    ),
    (lambda s: s["teams"][0].pop("quota"), "teams[0].quota: missing"),
    (
        lambda s: s["teams"][0]["secrets"][0].update(env="WANDB_API_KEY"),
        "teams[0].secrets[0].env: wrong-type",
    ),
    (
        lambda s: s["teams"][0].update(restoreDrill={"runs": 5, "largest": "40GB"}),
        "teams[0].restoreDrill.largest: quantity",
    ),
    (lambda s: s["teams"][1].update(name="Research"), "teams[1].name: dns-label"),
    (lambda s: s["teams"][1].pop("name"), "teams[1].name: missing"),
    (
        lambda s: s.update(
            images={"trainer": "111122223333.dkr.ecr.us-east-1.amazonaws.com/trainyard/trainer:v1"}
        ),
        "images.trainer: image-reference",
    ),
    (lambda s: s.pop("images"), "validation.image: unknown-name"),
    (lambda s: s.update(images=[]), "images: wrong-type"),
    (lambda s: s.update(registries=["Foo/bar"]), "registries[0]: registry"),
    (lambda s: s.update(scheduler="kueu"), "scheduler: unknown-value"),
    (lambda s: s.update(scheduler="slurm"), "scheduler: unknown-value"),
    (lambda s: s.update(taintKey="a b"), "taintKey: label-key"),
    (lambda s: s.pop("taintKey"), "taintKey: missing"),
    (lambda s: s.pop("teams"), "teams: missing"),
    (lambda s: s.update(teams=[]), "teams: too-few"),
    (lambda s: s.pop("nodePools"), "nodePools: missing"),
    (lambda s: s["observability"].update(receivers={}), "observability.receivers: wrong-type"),
    (
        lambda s: s["observability"]["receivers"][1].update(kind="slac"),
        "observability.receivers[1].kind: unknown-value",
    ),
    (
        lambda s: s["observability"]["receivers"][1].update(channel="gpu"),
        "observability.receivers[1].channel: slack-channel",
    ),
    (
        lambda s: s["observability"].update(grafana={"url": "http://x", "adminSecretName": "a"}),
        "observability.grafana.url: url",
    ),
    (
        lambda s: s["validation"].update(minGBps={"ondemand": "30"}),
        "validation.minGBps.ondemand: wrong-type",
    ),
    (
        lambda s: s["logs"].update(cloudwatch={"retentionDays": 100}),
        "logs.cloudwatch.retentionDays: log-retention",
    ),
    (lambda s: s.update(logs={"cloudwach": {}}), "logs.cloudwach: unknown-key"),
    (lambda s: s.update(logs="cloudwatch"), "logs: wrong-type"),
    (
        lambda s: s["signatures"].update(keyles=s["signatures"].pop("keyless")),
        "signatures.keyles: unknown-key",
    ),
    (lambda s: s["cluster"].update(endpoint="public"), "cluster.endpoint: wrong-type"),
    (
        lambda s: s["cluster"].update(
            systemNodes={"instanceTypes": ["m6i.4xlrge"], "min": 3, "max": 6}
        ),
        "cluster.systemNodes.instanceTypes[0]: system-node-type",
    ),
    (
        lambda s: s["cluster"].update(
            systemNodes={"instanceTypes": ["m6i.4xlarge"], "min": "3", "max": 6}
        ),
        "cluster.systemNodes.min: wrong-type",
    ),
    (
        lambda s: s["cluster"].update(systemNodes={"instanceTypes": ["m6i.4xlarge"], "min": 5}),
        "cluster.systemNodes.min: min-above-max",
    ),
    (lambda s: s.update(cluster="eks"), "cluster: wrong-type"),
    (lambda s: s.pop("cluster"), "cluster: missing"),
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
