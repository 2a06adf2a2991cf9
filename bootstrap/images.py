"""The repositories of the images: the trainer's, and that of what runs in the cluster."""

from __future__ import annotations

import json

import pulumi
import pulumi_aws.ecr as ecr

from infra.domain import naming

UNTAGGED_DAYS = 14
"""Days after which what an interrupted push left is removed. Tagged images stay: old runs name their digests."""


class Images(pulumi.ComponentResource):
    """A private repository whose tags never move, scanned at every push."""

    def __init__(self, name: str, repository: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsImages"), name, None, opts)
        made = ecr.Repository(
            name,
            name=repository,
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=ecr.RepositoryImageScanningConfigurationArgs(
                scan_on_push=True
            ),
            encryption_configurations=[
                ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS")
            ],
            opts=pulumi.ResourceOptions(parent=self, protect=True, retain_on_delete=True),
        )
        rule = {
            "rulePriority": 1,
            "description": f"untagged for {UNTAGGED_DAYS} days",
            "selection": {
                "tagStatus": "untagged",
                "countType": "sinceImagePushed",
                "countUnit": "days",
                "countNumber": UNTAGGED_DAYS,
            },
            "action": {"type": "expire"},
        }
        ecr.LifecyclePolicy(
            name,
            repository=made.name,
            policy=json.dumps({"rules": [rule]}),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.arn: pulumi.Output[str] = made.arn
        self.url: pulumi.Output[str] = made.repository_url
        self.register_outputs({"arn": made.arn, "url": made.repository_url})
