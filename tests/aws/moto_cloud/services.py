"""Every service that the tests' cloud has. A new one is a module and a line here."""

from tests.aws.moto_cloud import (
    ec2,
    ecr,
    efs,
    eks,
    events,
    fsx,
    iam,
    kms,
    launch_templates,
    logs,
    lookups,
    s3,
    sqs,
)

__all__ = [
    "ec2",
    "ecr",
    "efs",
    "eks",
    "events",
    "fsx",
    "iam",
    "kms",
    "launch_templates",
    "logs",
    "lookups",
    "s3",
    "sqs",
]
