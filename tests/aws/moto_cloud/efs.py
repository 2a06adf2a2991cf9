"""EFS."""

from __future__ import annotations

from tests.aws.moto_cloud.cloud import Cloud, document, listed, tags_of
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates


@creates("aws:efs/fileSystem:FileSystem")
def file_system(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    cloud.key(inputs["kmsKeyId"])
    made = cloud.client("efs").create_file_system(
        CreationToken=inputs["__name"],
        Encrypted=inputs["encrypted"],
        KmsKeyId=inputs["kmsKeyId"],
        PerformanceMode=inputs["performanceMode"],
        ThroughputMode=inputs["throughputMode"],
        Tags=tags_of(inputs),
    )
    return made["FileSystemId"], {"arn": made["FileSystemArn"]}


@creates("aws:efs/fileSystemPolicy:FileSystemPolicy")
def file_system_policy(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    efs = cloud.client("efs")
    [found] = efs.describe_file_systems(FileSystemId=inputs["fileSystemId"])["FileSystems"]
    for statement in listed(document(inputs["policy"])["Statement"]):
        if statement["Resource"] != found["FileSystemArn"]:
            raise ValueError(f"the policy of {found['FileSystemArn']} is of something else")
    efs.put_file_system_policy(FileSystemId=inputs["fileSystemId"], Policy=inputs["policy"])
    return inputs["fileSystemId"], {}


@creates("aws:efs/mountTarget:MountTarget")
def mount_target(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    made = cloud.client("efs").create_mount_target(
        FileSystemId=inputs["fileSystemId"],
        SubnetId=inputs["subnetId"],
        SecurityGroups=inputs["securityGroups"],
    )
    return made["MountTargetId"], {"ipAddress": made["IpAddress"]}


def check_backup_policy(inputs: Inputs, cloud: Cloud) -> None:
    """The file system exists; moto cannot be told to back it up."""
    cloud.client("efs").describe_file_systems(FileSystemId=inputs["fileSystemId"])
    if inputs["backupPolicy"]["status"] not in ("ENABLED", "DISABLED"):
        raise ValueError(f"backup policy {inputs['backupPolicy']}")
