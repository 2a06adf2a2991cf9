"""Image repositories."""

from __future__ import annotations

from tests.aws.moto_cloud.cloud import Cloud, name_of, tags_of
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates


@creates("aws:ecr/repository:Repository")
def repository(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    scanning = inputs.get("imageScanningConfiguration", {})
    [encryption] = inputs["encryptionConfigurations"]
    made = cloud.client("ecr").create_repository(
        repositoryName=name_of(inputs),
        imageTagMutability=inputs.get("imageTagMutability", "MUTABLE"),
        imageScanningConfiguration={"scanOnPush": bool(scanning.get("scanOnPush"))},
        encryptionConfiguration={"encryptionType": encryption["encryptionType"]},
        tags=tags_of(inputs),
    )["repository"]
    name = made["repositoryName"]
    return name, {"arn": made["repositoryArn"], "repositoryUrl": made["repositoryUri"]}


@creates("aws:ecr/lifecyclePolicy:LifecyclePolicy")
def lifecycle_policy(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    cloud.client("ecr").put_lifecycle_policy(
        repositoryName=inputs["repository"], lifecyclePolicyText=inputs["policy"]
    )
    return inputs["repository"], {}
