"""Mistakes in stack files: each is one exact line, and all of a file come at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.config import ConfigError, parse, stack_values
from infra.config.__main__ import main
from infra.domain import catalog
from tests.golden.example_runs import IMAGE
from tests.golden.example_runs import stack_values as example

Edit = Callable[[dict[str, Any]], object]

KEYS = (
    "autoscaler, aws, cluster, cohort, egressCidrs, gpus, images, interruption, "
    "logs, mirror, network, "
    "nodePools, observability, "
    "operators, registries, runs, scheduler, signatures, storage, taintKey, teams, validation"
)

SIGNER = {
    "issuer": "https://token.actions.githubusercontent.com",
    "subject": "https://github.com/acme/training/.github/workflows/image.yml@refs/heads/main",
}
KEY = "arn:aws:kms:us-east-1:111122223333:key/01234567-89ab-cdef-0123-456789abcdef"

TYPES = ", ".join(sorted(catalog.load().types))

BAD: dict[str, tuple[Edit, str]] = {
    "unknown key": (
        lambda s: s.update(nodePool=[]),
        f"nodePool: got an unknown key; allowed {KEYS}; did you mean nodePools?",
    ),
    "misspelt key": (
        lambda s: s.update(taintKye=s.pop("taintKey")),
        f"taintKye: got an unknown key; allowed {KEYS}; did you mean taintKey?",
    ),
    "unknown key deep inside": (
        lambda s: s["teams"][0]["quota"].update(gpu=1),
        "teams[0].quota.gpu: got an unknown key; allowed cpu, gpus, memory; did you mean gpus?",
    ),
    "missing key": (
        lambda s: s["nodePools"][0].pop("zone"),
        "nodePools[0].zone: got nothing; allowed an availability zone; add it",
    ),
    "no pool": (
        lambda s: s.update(nodePools=[], teams=[_team()]),
        "nodePools: got a list of 0; allowed at least 1 of them; change it",
    ),
    "wrong type": (
        lambda s: s["nodePools"][0].update(max="4"),
        "nodePools[0].max: got '4'; allowed a whole number, without quotes; change it",
    ),
    "number for text": (
        lambda s: s["teams"][0]["quota"].update(cpu=512),
        "teams[0].quota.cpu: got 512; allowed text (put it in quotes if it looks like a number); "
        "change it",
    ),
    "not a choice": (
        lambda s: s["nodePools"][1].update(capacity="sopt"),
        "nodePools[1].capacity: got 'sopt'; allowed 'spot' or 'on-demand'; did you mean spot?",
    ),
    "min above max": (
        lambda s: s["nodePools"][0].update(min=8),
        "nodePools[0].min: got 8; allowed at most max, 4; lower min or raise max",
    ),
    "negative size": (
        lambda s: s["nodePools"][0].update(min=-1),
        "nodePools[0].min: got -1; allowed at least 0; change it",
    ),
    "bad quantity": (
        lambda s: s["storage"].update(checkpoints="5Tb"),
        "storage.checkpoints: got '5Tb'; allowed a positive quantity such as 500m, 32 or 4Ti; "
        "correct it",
    ),
    "bad DNS name": (
        lambda s: s["teams"][1].update(name="Prod_Team"),
        "teams[1].name: got 'Prod_Team'; allowed lower-case letters, digits and hyphens, starting "
        "and ending with a letter or digit, at most 63; rename it",
    ),
    "duplicate team": (
        lambda s: s["teams"][1].update(name="research"),
        "teams[1].name: got 'research'; allowed a name of its own (teams[0] has this one); "
        "rename one of them",
    ),
    "duplicate pool": (
        lambda s: s["nodePools"][2].update(name="spot"),
        "nodePools[2].name: got 'spot'; allowed a name of its own (nodePools[1] has this one); "
        "rename one of them",
    ),
    "unknown instance type": (
        lambda s: s["nodePools"][0].update(instanceTypes=["p4d.24xlarg"]),
        f"nodePools[0].instanceTypes[0]: got 'p4d.24xlarg'; allowed {TYPES}; did you mean "
        "p4d.24xlarge?",
    ),
    "CPU type in a GPU pool": (
        lambda s: s["nodePools"][2].update(workload="gpu-training"),
        "nodePools[2].instanceTypes[0]: got 'm6i.4xlarge', which has no GPU; allowed instance "
        "types with GPUs in a gpu-training pool; choose a GPU type, or set workload: cpu",
    ),
    "GPU type in a CPU pool": (
        lambda s: s["nodePools"][2].update(instanceTypes=["g6.xlarge"]),
        "nodePools[2].instanceTypes[0]: got 'g6.xlarge', which has 1 GPUs; allowed instance types "
        "without GPUs in a cpu pool; choose a CPU type, or set workload: gpu-training",
    ),
    "EFA on a type without it": (
        lambda s: s["nodePools"][1].update(instanceTypes=["p3.16xlarge"]),
        "nodePools[1].instanceTypes[0]: got 'p3.16xlarge', which has no EFA; allowed instance "
        "types with EFA in a pool of network efa; choose another type, or set network: tcp",
    ),
    "label that the pool decides": (
        lambda s: s["nodePools"][0].update(labels={"node-type": "mine"}),
        "nodePools[0].labels.node-type: got a label that follows from the pool; allowed other "
        "labels; remove it",
    ),
    "guarantee of an unknown pool": (
        lambda s: s["teams"][0].update(guaranteed={"sport": 1}),
        "teams[0].guaranteed.sport: got an unknown pool; allowed cpu, ondemand, spot; "
        "did you mean spot?",
    ),
    "guarantee of a CPU pool": (
        lambda s: s["teams"][0].update(guaranteed={"cpu": 1}),
        "teams[0].guaranteed.cpu: got a cpu pool; allowed gpu-training pools, for only GPU nodes "
        "are queued for; remove it",
    ),
    "guarantees above the pool": (
        lambda s: s["teams"][0].update(guaranteed={"ondemand": 3}),
        "teams[1].guaranteed.ondemand: got 2, 5 with the teams above; allowed at most 1, for the "
        "pool has at most 4; lower it, or raise nodePools[0].max",
    ),
    "borrowing from an unknown pool": (
        lambda s: s["teams"][0].update(borrowing={"sport": 1}),
        "teams[0].borrowing.sport: got an unknown pool; allowed cpu, ondemand, spot; "
        "did you mean spot?",
    ),
    "lending a CPU pool": (
        lambda s: s["teams"][0].update(lending={"cpu": 0}),
        "teams[0].lending.cpu: got a cpu pool; allowed gpu-training pools, for only GPU nodes are "
        "queued for; remove it",
    ),
    "lending more than its own": (
        lambda s: s["teams"][0].update(lending={"spot": 5}),
        "teams[0].lending.spot: got 5; allowed at most 4, the nodes of spot that the team is "
        "guaranteed; lower it, or remove it to lend all",
    ),
    "borrowing more than there is": (
        lambda s: s["teams"][0].update(borrowing={"spot": 47}),
        "teams[0].borrowing.spot: got 47; allowed at most 46, what spot has beside the team's own; "
        "lower it, or remove it to borrow without a limit",
    ),
    "cost cap for production": (
        lambda s: s["teams"][1].update(onDemandUsdPerHour=50.0),
        "teams[1].onDemandUsdPerHour: got 50 for a team of tier production; allowed it for tier "
        "research, for on-demand nodes are what production lives on; remove it, and set borrowing "
        "where production must be bounded",
    ),
    "cost cap that buys nothing": (
        lambda s: s["teams"][0].update(onDemandUsdPerHour=21.5),
        "teams[0].onDemandUsdPerHour: got 21.5; allowed 0 for never, or at least 21.96, the price "
        "of one node; raise it, or set 0",
    ),
    "cost cap below the guarantee": (
        lambda s: s["teams"][0].update(guaranteed={"ondemand": 2}, onDemandUsdPerHour=40.0),
        "teams[0].onDemandUsdPerHour: got 40; allowed at least 43.92, what its guaranteed on-demand "
        "nodes cost; raise it, or guarantee fewer",
    ),
    "cost cap without a price": (
        lambda s: (
            [p.update(zone="eu-north-1a") for p in s["nodePools"]],
            s["teams"][0].update(onDemandUsdPerHour=100.0),
        ),
        "teams[0].onDemandUsdPerHour: got a cap on pools whose price is not known: ondemand; "
        "allowed a cap where catalog.yaml has a price of every on-demand pool; run python -m "
        "infra.cli.catalog refresh, or set borrowing in its place",
    ),
    "negative cost cap": (
        lambda s: s["teams"][0].update(onDemandUsdPerHour=-1),
        "teams[0].onDemandUsdPerHour: got -1; allowed at least 0.0; change it",
    ),
    "quota above all pools": (
        lambda s: s["teams"][0]["quota"].update(gpus=433),
        "teams[0].quota.gpus: got 433; allowed at most 432, all GPUs of all pools; "
        "lower it, or enlarge a pool",
    ),
    "no storage class for real nodes": (
        lambda s: s["storage"].pop("storageClass"),
        "storage.storageClass: got nothing; allowed a StorageClass of the cluster that serves "
        "ReadWriteMany; add it",
    ),
    "image by tag": (
        lambda s: s.update(images={"trainer": "registry.example.com/trainer:v1"}),
        "images.trainer: got 'registry.example.com/trainer:v1'; allowed REPOSITORY@sha256:DIGEST "
        "(64 hexadecimal digits); a tag can be moved, so pin the digest that the registry shows",
    ),
    "registry with a tag": (
        lambda s: s.update(registries=["registry.example.com/trainer@v1"], images={}),
        "registries[0]: got 'registry.example.com/trainer@v1'; allowed a registry or a repository "
        "in one, such as registry.example.com/training, without tag or digest; correct it",
    ),
    "image of a registry that is not allowed": (
        lambda s: s.update(registries=["registry.example.com/train"]),
        "images.trainer: got 'registry.example.com/trainer'; allowed images from registries: "
        "registry.example.com/train; add its registry to registries, or push it to one of them",
    ),
    "rdma without a network for it": (
        lambda s: (
            [pool.update(network="tcp") for pool in s["nodePools"]],
            s["teams"][0].update(rdma=True),
        ),
        "teams[0].rdma: got true; allowed it where a pool has network: efa or roce; remove it",
    ),
    "secret without a variable": (
        lambda s: s["teams"][0].update(secrets=[{"name": "hub", "env": []}]),
        "teams[0].secrets[0].env: got a list of 0; allowed at least one variable; add the keys of the Secret",
    ),
    "secret in no variable that a shell could have": (
        lambda s: s["teams"][0].update(secrets=[{"name": "hub", "env": ["hf-token"]}]),
        "teams[0].secrets[0].env[0]: got 'hf-token'; allowed a variable such as HF_TOKEN: capitals, "
        "digits and underscores; rename it",
    ),
    "duplicate secret": (
        lambda s: s["teams"][0].update(
            secrets=[{"name": "hub", "env": ["A"]}, {"name": "hub", "env": ["B"]}]
        ),
        "teams[0].secrets[1].name: got 'hub'; allowed a name of its own (teams[0].secrets[0].name "
        "has this one); rename one of them",
    ),
    "two secrets in one variable": (
        lambda s: s["teams"][0].update(
            secrets=[{"name": "hub", "env": ["A"]}, {"name": "bus", "env": ["B", "A"]}]
        ),
        "teams[0].secrets[1].env[1]: got 'A'; allowed a name of its own (teams[0].secrets[0].env[0] "
        "has this one); rename one of them",
    ),
    "store of a secret that is there": (
        lambda s: s["teams"][0].update(secrets=[{"name": "hub", "env": ["A"], "store": "vault"}]),
        "teams[0].secrets[0].store: got 'vault'; allowed a store for a secret with a remoteKey; add "
        "remoteKey, or remove store",
    ),
    "remote secret without a store": (
        lambda s: (
            s["teams"][0].update(secrets=[{"name": "hub", "env": ["A"], "remoteKey": "acme/hub"}]),
            s["operators"].update(externalSecrets={"provided": True}),
        ),
        "teams[0].secrets[0].store: got nothing; allowed a ClusterSecretStore of the cluster, for "
        "only EKS has one by itself; name it, or make the Secret by hand and remove remoteKey",
    ),
    "remote secret that nobody fetches": (
        lambda s: s["teams"][0].update(
            secrets=[{"name": "hub", "env": ["A"], "remoteKey": "acme/hub", "store": "vault"}]
        ),
        "teams[0].secrets[0].remoteKey: got 'acme/hub'; allowed remote secrets where the operator "
        "externalSecrets is; add externalSecrets: {provided: false} to operators",
    ),
    "signatures by nobody": (
        lambda s: s.update(signatures={}),
        "signatures: got no signer; allowed keyless or kmsKey; add one, or remove signatures",
    ),
    "signatures by two": (
        lambda s: s.update(signatures={"keyless": SIGNER, "kmsKey": KEY}),
        "signatures: got keyless and kmsKey; allowed keyless or kmsKey; remove one of them",
    ),
    "signatures by a key that nobody may read": (
        lambda s: s.update(signatures={"kmsKey": KEY}),
        "signatures.kmsKey: got a key of AWS; allowed keyless where cluster.provider is existing, "
        "for nothing there may read the key; set keyless",
    ),
    "signatures by anybody": (
        lambda s: s.update(signatures={"keyless": SIGNER | {"subject": "https://github.com/*"}}),
        "signatures.keyless.subject: got 'https://github.com/*'; allowed one identity, without "
        "wildcards or spaces; correct it",
    ),
    "checkout as an image of real nodes": (
        lambda s: s.update(images={"trainer": "registry.example.com/trainer@source"}),
        "images.trainer: got 'registry.example.com/trainer@source'; allowed "
        "REPOSITORY@sha256:DIGEST where nodes are real; push the image and pin the digest that "
        "the registry shows",
    ),
    "bad CIDR": (
        lambda s: s.update(egressCidrs=["10.0.0.0/33"]),
        "egressCidrs[0]: got '10.0.0.0/33'; allowed a CIDR block such as 10.0.0.0/16; correct it",
    ),
    "egress to the metadata service": (
        lambda s: s.update(egressCidrs=["10.0.0.0/8", "169.254.169.254/32"]),
        "egressCidrs[1]: got '169.254.169.254/32'; allowed no part of 169.254.0.0/16, where the "
        "metadata service hands out the node's role; remove it; pods get a role of their own by EKS "
        "Pod Identity",
    ),
    "plaintext secret by its value": (
        lambda s: s["nodePools"][0].update(labels={"owner": "AKIAIOSFODNN7EXAMPLE"}),
        "nodePools[0].labels.owner: got what looks like a secret in plain text; allowed no secrets "
        "in a file that is committed; put it in a Kubernetes Secret, and change it where it is "
        "valid",
    ),
    "plaintext secret by its key": (
        lambda s: s["nodePools"][0].update(labels={"registry-password": "hunter2"}),
        "nodePools[0].labels.registry-password: got what looks like a secret in plain text; "
        "allowed no secrets in a file that is committed; put it in a Kubernetes Secret, and change "
        "it where it is valid",
    ),
    "provider of another kind": (
        lambda s: s["cluster"].update(provider="gke"),
        "cluster.provider: got 'gke'; allowed eks, existing; choose one of them",
    ),
}


def _team() -> dict[str, Any]:
    return {
        "name": "research",
        "tier": "research",
        "quota": {"cpu": "512", "memory": "4Ti", "gpus": 32},
    }


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_exact_line(name: str) -> None:
    edit, expected = BAD[name]
    values = copy.deepcopy(example())
    edit(values)
    with pytest.raises(ConfigError) as caught:
        parse(values)
    assert caught.value.lines == (expected,)


def test_the_example_has_no_mistake() -> None:
    assert parse(example()).images == {"trainer": IMAGE}


def test_all_mistakes_come_at_once() -> None:
    values = copy.deepcopy(example())
    values["nodePools"][0].update(min="1", instanceTypes=["m6i.xlarge"], name="spot")
    values["teams"][0].update(name="Bad Name", guaranteed={"spto": 1})
    values["surprise"] = True
    with pytest.raises(ConfigError) as caught:
        parse(values)
    places = [line.partition(":")[0] for line in caught.value.lines]
    assert places == [
        "nodePools[0].min",
        "teams[0].name",
        "surprise",
        "nodePools[1].name",
        "nodePools[0].instanceTypes[0]",
        "teams[0].guaranteed.spto",
        "teams[1].guaranteed.ondemand",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config: [", "a YAML error at line 1, column 10"),
        ("config:\n  a: 1\n  a: 2\n", "key 'a' is there twice"),
        ("", "no configuration"),
        ("config:\n  aws:region: us-east-1\n", "no configuration"),
        ("name: trainyard\nruntime: python\n", "a file with name, runtime"),
    ],
)
def test_a_file_that_is_no_stack_file_is_one_line(
    tmp_path: Path, text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "Pulumi.odd.yaml"
    file.write_text(text)
    assert main(["check", str(file)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("Pulumi.odd.yaml: got ")
    assert expected in shown.err


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "Pulumi.none.yaml")]) == 1
    assert capsys.readouterr().err == (
        "Pulumi.none.yaml: got no such file; allowed a YAML file; check the name\n"
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
def test_the_committed_stacks_are_ok(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).resolve().parents[3]
    assert main(["check", str(root / file)]) == 0
    assert capsys.readouterr().out == "ok\n"


def test_keys_of_other_namespaces_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text("config:\n  aws:region: us-east-1\n  trainyard:cohort: c\nencryptionsalt: v1\n")
    assert stack_values(file) == {"cohort": "c"}
