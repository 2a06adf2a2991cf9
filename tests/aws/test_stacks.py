"""The committed stacks, whole: the program itself, each of its AWS resources created in moto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import get_args

import pytest

from infra.sections.cluster import EksClusterConfig
from infra.sites.aws import karpenter_manifests, machine_images
from tests.aws.moto_cloud import Deployed, deployed_once
from tests.aws.programs import whole


@pytest.fixture(scope="module", params=["dev", "prod"])
def stack(request: pytest.FixtureRequest) -> Iterator[Deployed]:
    yield from deployed_once(whole(request.param))


def test_every_kubernetes_object_uses_the_provider_of_the_cluster(
    stack: Deployed,
) -> None:
    objects = [one for one in stack.created if one.type.startswith("kubernetes:")]
    assert objects
    assert {one.provider for one in objects} == {"cluster"}


def test_every_aws_resource_uses_the_provider_of_the_stack_account(
    stack: Deployed,
) -> None:
    resources = [one for one in stack.created if one.type.startswith(("aws:", "eks:"))]
    assert len(resources) > 100
    assert {one.provider for one in resources} == {"aws-provider"}


def test_kubernetes_provider_knows_its_cluster_by_arn_and_time_of_creation(stack: Deployed) -> None:
    made = stack.cloud.cluster(_cluster(stack))
    providers = stack.all("pulumi:providers:kubernetes")
    assert [one.inputs["clusterIdentifier"] for one in providers if "kubeconfig" in one.inputs] == [
        f"{made['arn']} {made['createdAt']}"
    ]


def _cluster(stack: Deployed) -> str:
    return str(stack.one("eks:index:Cluster").inputs["name"])


def test_prometheus_volumes_are_encrypted_with_the_stack_key(
    stack: Deployed,
) -> None:
    (kept,) = [
        one
        for one in stack.all("kubernetes:storage.k8s.io/v1:StorageClass")
        if one.inputs["provisioner"] == "ebs.csi.aws.com"
    ]
    assert kept.inputs["parameters"]["encrypted"] == "true"
    key = stack.cloud.client("kms").describe_key(KeyId=kept.inputs["parameters"]["kmsKeyId"])
    assert key["KeyMetadata"]["KeyManager"] == "CUSTOMER"
    release = stack.one("kubernetes:helm.sh/v3:Release", "operators-kubePrometheusStack")
    spec = release.inputs["values"]["prometheus"]["prometheusSpec"]["storageSpec"]
    claim = spec["volumeClaimTemplate"]["spec"]
    assert claim["storageClassName"] == kept.inputs["metadata"]["name"]
    drivers = [one.inputs["addonName"] for one in stack.all("aws:eks/addon:Addon")]
    assert "aws-ebs-csi-driver" in drivers


def test_every_log_group_is_encrypted_with_a_key_that_lets_cloudwatch_use_it(
    stack: Deployed,
) -> None:
    groups = stack.all("aws:cloudwatch/logGroup:LogGroup")
    assert groups and all(group.inputs.get("kmsKeyId") for group in groups)
    policy = json.loads(stack.one("aws:kms/key:Key", "aws-keys-data").inputs["policy"])
    (logs,) = [one for one in policy["Statement"] if one["Sid"] == "Logs"]
    allowed = logs["Condition"]["ArnEquals"]["kms:EncryptionContext:aws:logs:arn"]
    named = {arn.rpartition(":log-group:")[2] for arn in allowed}
    assert {group.inputs["name"] for group in groups} <= named


def test_all_nodes_have_one_machine_image_release(stack: Deployed) -> None:
    groups = stack.all("aws:eks/nodeGroup:NodeGroup")
    assert {group.inputs["releaseVersion"] for group in groups} == {machine_images.release("1.35")}
    assert machine_images.DATE in karpenter_manifests.IMAGE


def test_every_version_of_kubernetes_has_a_machine_image() -> None:
    versions = get_args(EksClusterConfig.model_fields["version"].annotation)
    assert versions and all(machine_images.release(v).startswith(v) for v in versions)
