"""Mistakes in stack files: each is one issue, all are reported at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.config import parse, stack_values
from infra.config.__main__ import main
from tests.golden.example_runs import IMAGE
from tests.golden.example_runs import stack_values as example
from tests.unit.infra.config_issues import check_issues, codes, issues

Edit = Callable[[dict[str, Any]], object]

SIGNER = {
    "issuer": "https://token.actions.githubusercontent.com",
    "subject": "https://github.com/acme/training/.github/workflows/image.yml@refs/heads/main",
}
KEY = "arn:aws:kms:us-east-1:111122223333:key/01234567-89ab-cdef-0123-456789abcdef"

BAD: dict[str, tuple[Edit, str]] = {
    "unknown key": (
        lambda s: s.update(nodePool=[]),
        "nodePool: unknown-key",
    ),
    "misspelt key": (
        lambda s: s.update(taintKye=s.pop("taintKey")),
        "taintKye: unknown-key",
    ),
    "key in snake case": (
        lambda s: s["teams"][0].update(fair_weight=2),
        "teams[0].fair_weight: unknown-key",
    ),
    "unknown key deep inside": (
        lambda s: s["teams"][0]["quota"].update(gpu=1),
        "teams[0].quota.gpu: unknown-key",
    ),
    "missing key": (
        lambda s: s["nodePools"][0].pop("zone"),
        "nodePools[0].zone: missing",
    ),
    "no pool": (
        lambda s: s.update(nodePools=[], teams=[_team()]),
        "nodePools: too-few",
    ),
    "wrong type": (
        lambda s: s["nodePools"][0].update(max="4"),
        "nodePools[0].max: wrong-type",
    ),
    "number for text": (
        lambda s: s["teams"][0]["quota"].update(cpu=512),
        "teams[0].quota.cpu: wrong-type",
    ),
    "not a choice": (
        lambda s: s["nodePools"][1].update(capacity="sopt"),
        "nodePools[1].capacity: unknown-value",
    ),
    "min above max": (
        lambda s: s["nodePools"][0].update(min=8),
        "nodePools[0].min: min-above-max",
    ),
    "negative size": (
        lambda s: s["nodePools"][0].update(min=-1),
        "nodePools[0].min: out-of-range",
    ),
    "bad quantity": (
        lambda s: s["storage"].update(checkpoints="5Tb"),
        "storage.checkpoints: quantity",
    ),
    "bad DNS name": (
        lambda s: s["teams"][1].update(name="Prod_Team"),
        "teams[1].name: dns-label",
    ),
    "duplicate team": (
        lambda s: s["teams"][1].update(name="research"),
        "teams[1].name: duplicate",
    ),
    "duplicate pool": (
        lambda s: s["nodePools"][2].update(name="spot"),
        "nodePools[2].name: duplicate",
    ),
    "unknown instance type": (
        lambda s: s["nodePools"][0].update(instanceTypes=["p4d.24xlarg"]),
        "nodePools[0].instanceTypes[0]: unknown-instance-type",
    ),
    "CPU type in a GPU pool": (
        lambda s: s["nodePools"][2].update(workload="gpu-training"),
        "nodePools[2].instanceTypes[0]: type-without-gpu",
    ),
    "GPU type in a CPU pool": (
        lambda s: s["nodePools"][2].update(instanceTypes=["g6.xlarge"]),
        "nodePools[2].instanceTypes[0]: type-with-gpu",
    ),
    "EFA on a type without it": (
        lambda s: s["nodePools"][1].update(instanceTypes=["p3.16xlarge"]),
        "nodePools[1].instanceTypes[0]: type-without-efa",
    ),
    "label that the pool decides": (
        lambda s: s["nodePools"][0].update(labels={"node-type": "mine"}),
        "nodePools[0].labels.node-type: reserved-label",
    ),
    "guarantee of an unknown pool": (
        lambda s: s["teams"][0].update(guaranteed={"sport": 1}),
        "teams[0].guaranteed.sport: unknown-name",
    ),
    "guarantee of a CPU pool": (
        lambda s: s["teams"][0].update(guaranteed={"cpu": 1}),
        "teams[0].guaranteed.cpu: cpu-pool",
    ),
    "guarantees above the pool": (
        lambda s: s["teams"][0].update(guaranteed={"ondemand": 3}),
        "teams[1].guaranteed.ondemand: guarantees-above-pool",
    ),
    "borrowing from an unknown pool": (
        lambda s: s["teams"][0].update(borrowing={"sport": 1}),
        "teams[0].borrowing.sport: unknown-name",
    ),
    "lending a CPU pool": (
        lambda s: s["teams"][0].update(lending={"cpu": 0}),
        "teams[0].lending.cpu: cpu-pool",
    ),
    "lending more than its own": (
        lambda s: s["teams"][0].update(lending={"spot": 5}),
        "teams[0].lending.spot: lending-above-guarantee",
    ),
    "borrowing more than there is": (
        lambda s: s["teams"][0].update(borrowing={"spot": 47}),
        "teams[0].borrowing.spot: borrowing-above-pool",
    ),
    "cost cap for production": (
        lambda s: s["teams"][1].update(onDemandUsdPerHour=50.0),
        "teams[1].onDemandUsdPerHour: cost-cap-tier",
    ),
    "cost cap that buys nothing": (
        lambda s: s["teams"][0].update(onDemandUsdPerHour=21.5),
        "teams[0].onDemandUsdPerHour: cost-cap-below-node",
    ),
    "cost cap below the guarantee": (
        lambda s: s["teams"][0].update(guaranteed={"ondemand": 2}, onDemandUsdPerHour=40.0),
        "teams[0].onDemandUsdPerHour: cost-cap-below-guarantee",
    ),
    "cost cap without a price": (
        lambda s: (
            [p.update(zone="eu-north-1a") for p in s["nodePools"]],
            s["teams"][0].update(onDemandUsdPerHour=100.0),
        ),
        "teams[0].onDemandUsdPerHour: price-unknown",
    ),
    "negative cost cap": (
        lambda s: s["teams"][0].update(onDemandUsdPerHour=-1),
        "teams[0].onDemandUsdPerHour: out-of-range",
    ),
    "quota above all pools": (
        lambda s: s["teams"][0]["quota"].update(gpus=433),
        "teams[0].quota.gpus: quota-above-pools",
    ),
    "no storage class for real nodes": (
        lambda s: s["storage"].pop("storageClass"),
        "storage.storageClass: missing",
    ),
    "image by tag": (
        lambda s: s.update(images={"trainer": "registry.example.com/trainer:v1"}),
        "images.trainer: image-reference",
    ),
    "registry with a tag": (
        lambda s: s.update(registries=["registry.example.com/trainer@v1"], images={}),
        "registries[0]: registry",
    ),
    "image of a registry that is not allowed": (
        lambda s: s.update(registries=["registry.example.com/train"]),
        "images.trainer: registry-not-allowed",
    ),
    "a team with the capability of locking memory": (
        lambda s: s["teams"][0].update(rdma=True),
        "teams[0].rdma: unknown-key",
    ),
    "secret without a variable": (
        lambda s: s["teams"][0].update(secrets=[{"name": "hub", "env": []}]),
        "teams[0].secrets[0].env: too-few",
    ),
    "secret in no variable that a shell could have": (
        lambda s: s["teams"][0].update(secrets=[{"name": "hub", "env": ["hf-token"]}]),
        "teams[0].secrets[0].env[0]: variable",
    ),
    "duplicate secret": (
        lambda s: s["teams"][0].update(
            secrets=[{"name": "hub", "env": ["A"]}, {"name": "hub", "env": ["B"]}]
        ),
        "teams[0].secrets[1].name: duplicate",
    ),
    "member in a group of the cluster's own": (
        lambda s: s["teams"][0].update(members={"leads": ["system:masters"]}),
        "teams[0].members.leads[0]: reserved-group",
    ),
    "two members in one": (
        lambda s: s["teams"][0].update(members={"leads": ["ml,ops"]}),
        "teams[0].members.leads[0]: member",
    ),
    "member who is researcher and lead": (
        lambda s: s["teams"][0].update(members={"researchers": ["ml"], "leads": ["ml"]}),
        "teams[0].members.leads[0]: duplicate",
    ),
    "IAM role on another cluster": (
        lambda s: s["teams"][0].update(members={"leads": ["arn:aws:iam::111122223333:role/ml"]}),
        "teams[0].members.leads[0]: role-without-eks",
    ),
    "two secrets in one variable": (
        lambda s: s["teams"][0].update(
            secrets=[{"name": "hub", "env": ["A"]}, {"name": "bus", "env": ["B", "A"]}]
        ),
        "teams[0].secrets[1].env[1]: duplicate",
    ),
    "store of a secret that is there": (
        lambda s: s["teams"][0].update(secrets=[{"name": "hub", "env": ["A"], "store": "vault"}]),
        "teams[0].secrets[0].store: store-without-key",
    ),
    "remote secret without a store": (
        lambda s: (
            s["teams"][0].update(secrets=[{"name": "hub", "env": ["A"], "remoteKey": "acme/hub"}]),
            s["operators"].update(externalSecrets={"provided": True}),
        ),
        "teams[0].secrets[0].store: missing",
    ),
    "remote secret that nobody fetches": (
        lambda s: s["teams"][0].update(
            secrets=[{"name": "hub", "env": ["A"], "remoteKey": "acme/hub", "store": "vault"}]
        ),
        "teams[0].secrets[0].remoteKey: operator-required",
    ),
    "signatures by nobody": (
        lambda s: s.update(signatures={}),
        "signatures: single-signer",
    ),
    "signatures by two": (
        lambda s: s.update(signatures={"keyless": SIGNER, "kmsKey": KEY}),
        "signatures: single-signer",
    ),
    "signatures by a key that nobody may read": (
        lambda s: s.update(signatures={"kmsKey": KEY}),
        "signatures.kmsKey: aws-only",
    ),
    "signatures by anybody": (
        lambda s: s.update(signatures={"keyless": SIGNER | {"subject": "https://github.com/*"}}),
        "signatures.keyless.subject: identity",
    ),
    "checkout as an image of real nodes": (
        lambda s: s.update(images={"trainer": "registry.example.com/trainer@source"}),
        "images.trainer: source-image",
    ),
    "bad CIDR": (
        lambda s: s.update(egressCidrs=["10.0.0.0/33"]),
        "egressCidrs[0]: cidr",
    ),
    "egress to the metadata service": (
        lambda s: s.update(egressCidrs=["10.0.0.0/8", "169.254.169.254/32"]),
        "egressCidrs[1]: egress-to-metadata",
    ),
    "plaintext secret by its value": (
        lambda s: s["nodePools"][0].update(labels={"owner": "AKIAIOSFODNN7EXAMPLE"}),
        "nodePools[0].labels.owner: plaintext-secret",
    ),
    "plaintext secret by its key": (
        lambda s: s["nodePools"][0].update(labels={"registry-password": "hunter2"}),
        "nodePools[0].labels.registry-password: plaintext-secret",
    ),
    "provider of another kind": (
        lambda s: s["cluster"].update(provider="gke"),
        "cluster.provider: unknown-value",
    ),
}


def _team() -> dict[str, Any]:
    return {
        "name": "research",
        "tier": "research",
        "quota": {"cpu": "512", "memory": "4Ti", "gpus": 32},
    }


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_one_issue(name: str) -> None:
    edit, expected = BAD[name]
    values = copy.deepcopy(example())
    edit(values)
    check_issues("stacks", name, values, expected)


def test_example_stack_is_valid() -> None:
    assert parse(example()).images == {"trainer": IMAGE}


def test_all_invalid_values_are_reported_at_once_and_then_all_rules() -> None:
    values = copy.deepcopy(example())
    values["nodePools"][0].update(min="1", instanceTypes=["m6i.xlarge"])
    values["teams"][0].update(name="Bad Name", guaranteed={"spto": 1})
    values["surprise"] = True
    values["cohort"] = "AKIA0123456789ABCDEF"
    assert codes(issues(values)) == [
        "cohort: dns-label",
        "nodePools[0].min: wrong-type",
        "teams[0].name: dns-label",
        "surprise: unknown-key",
        "cohort: plaintext-secret",
    ]
    values["nodePools"][0]["min"], values["teams"][0]["name"] = 9, "nlp"
    del values["surprise"], values["cohort"]
    values["cohort"] = "training"
    assert codes(issues(values)) == [
        "nodePools[0].min: min-above-max",
        "nodePools[0].instanceTypes[0]: type-without-gpu",
        "teams[0].guaranteed.spto: unknown-name",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config: [", "YAML error at line 1, column 10"),
        ("config:\n  a: 1\n  a: 2\n", "duplicate key 'a'"),
        ("", "no configuration"),
        ("config:\n  aws:region: us-east-1\n", "no configuration"),
        ("name: trainyard\nruntime: python\n", "has name, runtime"),
    ],
)
def test_invalid_stack_file_is_reported_in_one_line(
    tmp_path: Path, text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "Pulumi.odd.yaml"
    file.write_text(text)
    assert main(["check", str(file)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("Pulumi.odd.yaml: ")
    assert expected in shown.err


def test_missing_stack_file_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path / "Pulumi.none.yaml")]) == 1
    assert capsys.readouterr().err == (
        "Pulumi.none.yaml: no such file; must be a YAML file; check the name\n"
    )


@pytest.mark.parametrize(
    "file",
    [
        "Pulumi.local.yaml",
        "Pulumi.dev.yaml",
        "Pulumi.prod.yaml",
        "tests/golden/existing-cluster.yaml",
    ],
)
def test_committed_stacks_are_valid(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).resolve().parents[3]
    assert main(["check", str(root / file)]) == 0
    assert capsys.readouterr().out == "ok\n"


def test_config_keys_of_other_namespaces_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text("config:\n  aws:region: us-east-1\n  trainyard:cohort: c\nencryptionsalt: v1\n")
    assert stack_values(file) == {"cohort": "c"}
