"""Answers of the aws and eks stand-ins, and isolation of previews from stacks and files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.proto import provider_pb2
from rich.console import Console

from sandbox import environment, paths, preview
from sandbox.aws_preview import eks_cluster, lookups
from sandbox.aws_preview.eks_cluster import PlannedResource
from sandbox.aws_preview.lookups import NotSupportedError, Place
from sandbox.aws_preview.properties import UNKNOWN, decode, encode, reveal
from sandbox.aws_preview.server import AwsProvider, planned_outputs
from sandbox.cli import main
from sandbox.engine import Engine
from sandbox.reporting import SandboxError
from tests.unit.snapshots import Snapshot

HERE = Place("111122223333", "us-east-1")
CLUSTER: dict[str, Any] = {
    "name": "training",
    "vpcId": "vpc-1",
    "privateSubnetIds": ["subnet-1"],
    **eks_cluster.CONTROL_PLANE_ONLY,
    "corednsAddonOptions": {"enabled": False, "resolveConflictsOnCreate": "OVERWRITE"},
    "kubeProxyAddonOptions": {"enabled": False},
}


def invoke(name: str, place: Place = HERE, **arguments: Any) -> dict[str, Any]:
    return lookups.answer(f"aws:index/{name}:{name}", arguments, place)


def made(**inputs: Any) -> dict[str, PlannedResource]:
    found = eks_cluster.children("c", CLUSTER | inputs)
    return {child.name: child for child in found}


def test_lookups_use_the_providers_account_and_region() -> None:
    assert invoke("getCallerIdentity")["accountId"] == "111122223333"
    abroad = invoke("getCallerIdentity", region="cn-north-1")
    assert abroad["arn"].startswith("arn:aws-cn:sts::111122223333:")


def test_properties_come_back_as_they_were_without_nulls_and_secrets_are_read_in_their_signature() -> (
    None
):
    hidden = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "value": [1]}
    tree = {"whole": 3, "part": 0.5, "later": UNKNOWN, "hidden": hidden, "empty": {}, "none": []}
    assert decode(encode({**tree, "null": None})) == tree
    assert reveal({"a": [hidden]}) == {"a": [[1]]}


def test_unknown_lookups_are_rejected_by_name() -> None:
    with pytest.raises(
        NotSupportedError,
        match=r"no answer for the invoke aws:index/getInstance:getInstance; run `pulumi preview`",
    ) as refused:
        invoke("getInstance")
    assert "\n" not in str(refused.value)


def test_outputs_contain_inputs_and_unknown_values_of_aws() -> None:
    inputs = {"version": "1.35", "vpcConfig": {"subnetIds": ["a"]}}
    planned = planned_outputs("aws:eks/cluster:Cluster", inputs)
    assert planned["vpcConfig"]["clusterSecurityGroupId"] == UNKNOWN
    assert planned["vpcConfig"]["subnetIds"] == ["a"] and planned["version"] == "1.35"
    assert inputs["vpcConfig"] == {"subnetIds": ["a"]}
    assert planned_outputs("aws:ec2/vpc:Vpc", {"cidrBlock": "x"}) == {"cidrBlock": "x"}


def test_provider_requires_a_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)

    def failures(**config: str) -> list[str]:
        request = provider_pb2.CheckRequest(news=encode(config))
        no_context: Any = None
        return [item.property for item in AwsProvider().CheckConfig(request, no_context).failures]

    assert failures() == ["region"] and failures(region="eu-west-1") == []
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert failures() == []


def test_minimal_cluster_has_a_role_a_control_plane_and_a_provider() -> None:
    found = made()
    assert list(found) == [
        "c-eksRole",
        "c-eksRole-role",
        "c-eksRole-4b490823",
        "c-eksCluster",
        "c-eks-k8s",
    ]
    assert found["c-eksCluster"].inputs["vpcConfig"] == {"subnetIds": ["subnet-1"]}


def test_inputs_of_the_component_reach_the_control_plane() -> None:
    plane = made(
        encryptionConfigKeyArn="arn:key",
        authenticationMode="API",
        kubernetesServiceIpAddressRange="10.100.0.0/16",
    )["c-eksCluster"].inputs
    assert plane["encryptionConfig"] == {
        "provider": {"keyArn": "arn:key"},
        "resources": ["secrets"],
    }
    assert plane["accessConfig"]["authenticationMode"] == "API"
    assert plane["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "10.100.0.0/16"


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ({"fargate": True}, "fargate"),
        ({"autoMode": {"enabled": True}}, "autoMode"),
        ({"kubeProxyAddonOptions": {}}, "kubeProxyAddonOptions that are enabled"),
        ({"skipDefaultNodeGroup": False}, "skipDefaultNodeGroup other than true"),
    ],
)
def test_unsimulated_component_is_rejected(inputs: dict[str, Any], named: str) -> None:
    with pytest.raises(
        NotSupportedError, match=f"does not know .*{named}.* of eks:index:Cluster c; run"
    ):
        made(**inputs)


def test_isolated_preview_uses_neither_the_local_stack_nor_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = paths.State(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "mine")
    env = environment.preview_variables(state)
    assert str(state.backend) not in env["PULUMI_BACKEND_URL"]
    assert env["KUBECONFIG"] != "mine"


def test_isolated_preview_uses_a_copy_of_the_stack_file_without_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, checkout = paths.State(tmp_path / "home"), tmp_path / "checkout"
    checkout.mkdir()
    state.bin.mkdir(parents=True)
    committed = "secretsprovider: awskms://alias/x\nencryptedkey: abc\nconfig:\n  a:b: c\n"
    (checkout / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (checkout / "Pulumi.dev.yaml").write_text(committed)
    pulumi = state.bin / "pulumi"
    pulumi.write_text(
        '#!/bin/sh\necho "$PWD $*" >> "$LOG"\n'
        'case "$*" in *"stack ls"*) echo "[]";; preview*) exit 7;; esac\n'
    )
    pulumi.chmod(0o755)
    monkeypatch.setattr(paths, "PROJECT", checkout)
    engine = Engine(state, os.environ | {"LOG": str(tmp_path / "log")})

    scratch = tmp_path / "scratch"
    assert engine.preview_new("dev", Path("policies"), scratch) == 7

    assert (checkout / "Pulumi.dev.yaml").read_text() == committed
    assert (scratch / "Pulumi.dev.yaml").read_text() == "config:\n  a:b: c\n"
    made, previewed = (tmp_path / "log").read_text().splitlines()[1:]
    assert made.startswith(f"{scratch} stack init dev")
    assert previewed.startswith(f"{checkout} preview --stack dev --policy-pack policies")
    assert f"--config-file {scratch}/Pulumi.dev.yaml" in previewed


def test_preview_of_another_stack_removes_the_salt_from_the_local_stack_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "Pulumi.local.yaml"
    local.write_text("config:\n  a:b: c\nencryptionsalt: v1:YAO=:v1:VHeI\n")
    (tmp_path / "Pulumi.prod.yaml").write_text("config: {}\n")
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(preview, "_preview_new", lambda *_: 0)
    assert main(["preview", "prod"]) == 0
    assert local.read_text() == "config:\n  a:b: c\n"


def test_unknown_stack_error_lists_existing_stacks(texts: Snapshot) -> None:
    with pytest.raises(SandboxError, match=r"^stack: got 'staging'") as caught:
        preview.preview_stack("staging", Console())
    texts.check("unknown stack", [str(caught.value)])


def test_preview_of_the_local_stack_requires_a_deployed_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path))
    with pytest.raises(SandboxError, match="the local stack is not up; run `make up` first"):
        preview.preview_stack("local", Console())


def test_a_stand_in_takes_the_place_of_each_plugin_of_a_cloud(tmp_path: Path) -> None:
    state = paths.State(tmp_path)
    for plugin in environment.CLOUD:
        earlier = plugin.binary(state)
        earlier.parent.mkdir(parents=True, exist_ok=True)
        earlier.write_bytes(b"\x7fELF\xff")
        environment.install_stand_ins(state)
        assert f"-m sandbox.aws_preview {plugin.package}" in earlier.read_text()


def test_plugin_versions_match_the_installed_sdks() -> None:
    pins = (paths.PROJECT / "requirements.in").read_text()
    for plugin in environment.CLOUD:
        assert f"pulumi-{plugin.package}=={plugin.version}\n" in pins
