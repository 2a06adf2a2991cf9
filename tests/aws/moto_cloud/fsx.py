"""FSx for Lustre. Moto does not validate file systems, so this module does."""

from __future__ import annotations

from typing import Any

from tests.aws.iam_evaluation import Request, allowed
from tests.aws.moto_cloud.cloud import ACCOUNT, REGION, Cloud, document, listed, tags_of
from tests.aws.moto_cloud.ec2 import pascal
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates

_LINKED_ROLE = (
    f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/"
    "AWSServiceRoleForFSxS3Access"
)
_CONFIGURATION = (
    "deploymentType",
    "perUnitStorageThroughput",
    "dataCompressionType",
    "metadataConfiguration",
    "automaticBackupRetentionDays",
)


@creates("aws:fsx/lustreFileSystem:LustreFileSystem")
def lustre_file_system(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    [subnet] = cloud.subnets([inputs["subnetIds"]])
    groups = cloud.security_groups(inputs["securityGroupIds"])
    _check(inputs, subnet, groups)
    cloud.key(inputs["kmsKeyId"])
    configuration = pascal({key: inputs[key] for key in _CONFIGURATION if key in inputs})
    made = cloud.client("fsx").create_file_system(
        FileSystemType="LUSTRE",
        FileSystemTypeVersion=inputs["fileSystemTypeVersion"],
        StorageCapacity=inputs["storageCapacity"],
        StorageType=inputs["storageType"],
        SubnetIds=[subnet["SubnetId"]],
        SecurityGroupIds=inputs["securityGroupIds"],
        KmsKeyId=inputs["kmsKeyId"],
        LustreConfiguration=configuration,
        Tags=tags_of(inputs),
    )["FileSystem"]
    return made["FileSystemId"], {
        "arn": made["ResourceARN"],
        "dnsName": made["DNSName"],
        "mountName": made["FileSystemId"].removeprefix("fs-"),
        "vpcId": subnet["VpcId"],
    }


def _check(inputs: Inputs, subnet: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    if inputs["deploymentType"] != "PERSISTENT_2" or inputs["storageType"] != "SSD":
        raise NotImplementedError("other file systems than PERSISTENT_2 on SSD")
    size, speed = inputs["storageCapacity"], inputs["perUnitStorageThroughput"]
    if size != 1200 and (size <= 0 or size % 2400):
        raise ValueError(f"FSx sells no {size} GiB")
    if speed not in (125, 250, 500, 1000):
        raise ValueError(f"FSx sells no {speed} MB/s for a TiB")
    for group in groups:
        if group["VpcId"] != subnet["VpcId"]:
            raise ValueError(f"{group['GroupId']} is not in the VPC of {subnet['SubnetId']}")
    for direction in ("IpPermissions", "IpPermissionsEgress"):
        for first, last in ((988, 988), (1018, 1023)):
            if not any(_lets_in(group, direction, first, last) for group in groups):
                raise ValueError(f"servers cannot reach each other on {first}: {direction}")


def _lets_in(group: dict[str, Any], direction: str, first: int, last: int) -> bool:
    """Whether a group's members reach each other on these ports."""
    return any(
        rule["IpProtocol"] == "tcp" and rule["FromPort"] <= first and last <= rule["ToPort"]
        for rule in group[direction]
        for pair in rule["UserIdGroupPairs"]
        if pair["GroupId"] == group["GroupId"]
    )


def check_association(inputs: Inputs, cloud: Cloud) -> None:
    """Both ends exist; moto knows no associations itself."""
    fsx = cloud.client("fsx")
    found = fsx.describe_file_systems(FileSystemIds=[inputs["fileSystemId"]])["FileSystems"]
    if len(found) != 1:
        raise LookupError(f"file system {inputs['fileSystemId']} does not exist")
    if found[0]["LustreConfiguration"].get("AutomaticBackupRetentionDays"):
        raise ValueError("FSx links no file system that makes backups")
    uri = inputs["dataRepositoryPath"]
    if not uri.startswith("s3://") or not uri.endswith("/"):
        raise ValueError(f"{uri!r} is not s3://BUCKET/PREFIX/")
    _check_bucket(uri.removeprefix("s3://").partition("/")[0], inputs["fileSystemId"], cloud)
    if not inputs["fileSystemPath"].startswith("/"):
        raise ValueError(f"{inputs['fileSystemPath']!r} does not start at the root")


def _check_bucket(bucket: str, file_system: str, cloud: Cloud) -> None:
    """FSx reads and writes it as a role that only the key's own policy can let use the key."""
    encryption = cloud.client("s3").get_bucket_encryption(Bucket=bucket)
    for rule in encryption["ServerSideEncryptionConfiguration"]["Rules"]:
        key = rule["ApplyServerSideEncryptionByDefault"].get("KMSMasterKeyID")
        if key is None:
            continue
        text = cloud.client("kms").get_key_policy(KeyId=key, PolicyName="default")["Policy"]
        # Statements for the account leave it to IAM policies, and this role's cannot be changed.
        own = [
            one
            for one in listed(document(text)["Statement"])
            if one["Principal"] != {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
        ]
        asked = Request(
            action="kms:GenerateDataKey",
            resource=key,
            account=ACCOUNT,
            context={
                "aws:PrincipalArn": f"{_LINKED_ROLE}_{file_system}",
                "kms:CallerAccount": ACCOUNT,
                "kms:ViaService": f"s3.{REGION}.amazonaws.com",
                "kms:EncryptionContext:aws:s3:arn": f"arn:aws:s3:::{bucket}",
            },
        )
        if not allowed(asked, resource={"Statement": own}, owner=ACCOUNT):
            raise PermissionError(f"FSx may not use {key}, which encrypts {bucket}")
