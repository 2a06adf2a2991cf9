"""Keys."""

from __future__ import annotations

from tests.aws.moto_cloud.cloud import ACCOUNT, Cloud, document, listed
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates


@creates("aws:kms/key:Key")
def key(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    request = {}
    if "policy" in inputs:
        _check_policy(inputs["policy"])
        request["Policy"] = inputs["policy"]
    made = cloud.client("kms").create_key(
        Description=inputs.get("description", ""),
        Tags=[{"TagKey": k, "TagValue": v} for k, v in sorted(inputs["tagsAll"].items())],
        **request,
    )["KeyMetadata"]
    if inputs.get("enableKeyRotation"):
        cloud.client("kms").enable_key_rotation(KeyId=made["KeyId"])
    return made["KeyId"], {"arn": made["Arn"], "keyId": made["KeyId"]}


@creates("aws:kms/alias:Alias")
def alias(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    cloud.client("kms").create_alias(AliasName=inputs["name"], TargetKeyId=inputs["targetKeyId"])
    return inputs["name"], {}


def _check_policy(text: str) -> None:
    """KMS refuses a policy that would lock everybody out of the key."""
    statements = listed(document(text)["Statement"])
    root = f"arn:aws:iam::{ACCOUNT}:root"
    if not any(
        root in listed(one["Principal"].get("AWS", [])) and "kms:*" in listed(one["Action"])
        for one in statements
        if one["Effect"] == "Allow" and isinstance(one["Principal"], dict)
    ):
        raise ValueError(f"nobody in account {ACCOUNT} could change this key's policy again")
