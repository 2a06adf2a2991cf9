"""Buckets and what belongs to them. Moto checks most; the rest is checked here as S3 does."""

from __future__ import annotations

import re
from typing import Any

from tests.aws.moto_cloud.cloud import REGION, Cloud, document, listed, tags_of
from tests.aws.moto_cloud.ec2 import pascal
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


@creates("aws:s3/bucket:Bucket")
def bucket(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    name = inputs["bucket"]
    if not _NAME.fullmatch(name):
        raise ValueError(f"S3 refuses the bucket name {name!r}")
    cloud.client("s3").create_bucket(Bucket=name)
    cloud.client("s3").put_bucket_tagging(Bucket=name, Tagging={"TagSet": tags_of(inputs)})
    return name, {
        "arn": f"arn:aws:s3:::{name}",
        "bucketDomainName": f"{name}.s3.amazonaws.com",
        "region": REGION,
    }


@creates("aws:s3/bucketVersioning:BucketVersioning")
def versioning(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    cloud.client("s3").put_bucket_versioning(
        Bucket=inputs["bucket"],
        VersioningConfiguration=pascal(inputs["versioningConfiguration"]),
    )
    return inputs["bucket"], {}


@creates("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration")
def encryption(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    rules = []
    for rule in inputs["rules"]:
        default = rule["applyServerSideEncryptionByDefault"]
        request = {"SSEAlgorithm": default["sseAlgorithm"]}
        if key := default.get("kmsMasterKeyId"):
            cloud.key(key)
            request["KMSMasterKeyID"] = key
        rules.append(
            {
                "ApplyServerSideEncryptionByDefault": request,
                "BucketKeyEnabled": rule["bucketKeyEnabled"],
            }
        )
    cloud.client("s3").put_bucket_encryption(
        Bucket=inputs["bucket"], ServerSideEncryptionConfiguration={"Rules": rules}
    )
    return inputs["bucket"], {}


@creates("aws:s3/bucketOwnershipControls:BucketOwnershipControls")
def ownership(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    cloud.client("s3").put_bucket_ownership_controls(
        Bucket=inputs["bucket"], OwnershipControls={"Rules": [pascal(inputs["rule"])]}
    )
    return inputs["bucket"], {}


@creates("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock")
def public_access_block(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    flags = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    cloud.client("s3").put_public_access_block(
        Bucket=inputs["bucket"],
        PublicAccessBlockConfiguration=pascal({flag: inputs[flag] for flag in flags}),
    )
    return inputs["bucket"], {}


@creates("aws:s3/bucketPolicy:BucketPolicy")
def policy(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    own = f"arn:aws:s3:::{inputs['bucket']}"
    for statement in listed(document(inputs["policy"])["Statement"]):
        if "Principal" not in statement:
            raise ValueError(f"a bucket policy's statement needs a principal: {statement}")
        for resource in listed(statement["Resource"]):
            if resource != own and not resource.startswith(f"{own}/"):
                raise ValueError(f"the policy of {own} names {resource}, which S3 refuses")
    cloud.client("s3").put_bucket_policy(Bucket=inputs["bucket"], Policy=inputs["policy"])
    return inputs["bucket"], {}


@creates("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration")
def lifecycle(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    rules = [_lifecycle_rule(rule) for rule in inputs["rules"]]
    names = [rule["ID"] for rule in rules]
    if len(set(names)) != len(names):
        raise ValueError(f"lifecycle rules share a name: {names}")
    cloud.client("s3").put_bucket_lifecycle_configuration(
        Bucket=inputs["bucket"], LifecycleConfiguration={"Rules": rules}
    )
    return inputs["bucket"], {}


def _lifecycle_rule(rule: dict[str, Any]) -> dict[str, Any]:
    renamed = {"id": "ID"}
    return {renamed.get(key, pascal({key: 0}).popitem()[0]): pascal(rule[key]) for key in rule}


@creates("aws:s3/bucketLogging:BucketLogging")
def logging(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    _refuse_key_of_ours(inputs["targetBucket"], cloud)
    cloud.client("s3").put_bucket_logging(
        Bucket=inputs["bucket"],
        BucketLoggingStatus={
            "LoggingEnabled": {
                "TargetBucket": inputs["targetBucket"],
                "TargetPrefix": inputs["targetPrefix"],
            }
        },
    )
    return inputs["bucket"], {}


def _refuse_key_of_ours(name: str, cloud: Cloud) -> None:
    """S3 delivers no access logs to a bucket whose default encryption is SSE-KMS; moto would."""
    found = cloud.client("s3").get_bucket_encryption(Bucket=name)
    for rule in found["ServerSideEncryptionConfiguration"]["Rules"]:
        if rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] != "AES256":
            raise ValueError(f"S3 delivers no access logs to {name}, which a KMS key encrypts")
