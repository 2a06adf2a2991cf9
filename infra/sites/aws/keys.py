"""The stack's KMS keys: one for the cluster's secrets, one for data at rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pulumi
import pulumi_aws.kms as kms

from infra.domain import naming
from infra.sites.aws.policy_documents import KEY_USE, Statement, document
from infra.sites.aws.provider import ProviderArgs

DELETION_DAYS: Final = 30
"""Days in which a deleted key can be restored: the most that KMS allows."""


class Keys(pulumi.ComponentResource):
    cluster_key_arn: pulumi.Output[str]
    """Key for envelope encryption of the API server's data."""
    data_key_arn: pulumi.Output[str]
    """Key of root volumes, file systems and buckets."""

    def __init__(
        self,
        name: str,
        site: ProviderArgs,
        opts: pulumi.ResourceOptions,
        *,
        data_statements: Sequence[Statement] = (),
        protect: bool = True,
    ) -> None:
        """Create them.

        `data_statements`: more statements of the data key's policy, for services that use it on their own behalf.
        `protect`: refuse to delete the keys, since data encrypted by a deleted key is lost.
        """
        super().__init__(naming.infra_type("AwsKeys"), name, None, opts)
        self._name, self._cluster, self._keep = name, site.cluster, protect
        own = administration_statement(site.account)
        volumes = volume_statements(site.account, site.region)
        self.cluster_key_arn = self._key("cluster", "Secrets of the cluster", [own])
        self.data_key_arn = self._key(
            "data", "Volumes, file systems and buckets", [own, *volumes, *data_statements]
        )
        self.register_outputs(
            {"clusterKeyArn": self.cluster_key_arn, "dataKeyArn": self.data_key_arn}
        )

    def _key(
        self, use: str, description: str, statements: Sequence[Statement]
    ) -> pulumi.Output[str]:
        key = kms.Key(
            f"{self._name}-{use}",
            description=f"{description} of {self._cluster}",
            enable_key_rotation=True,
            deletion_window_in_days=DELETION_DAYS,
            policy=json.dumps(document(*statements)),
            opts=pulumi.ResourceOptions(
                parent=self, protect=self._keep, retain_on_delete=self._keep
            ),
        )
        kms.Alias(
            f"{self._name}-{use}",
            name=f"alias/{self._cluster}-{use}",
            target_key_id=key.key_id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        return key.arn


def administration_statement(account: str) -> Statement:
    """Return the statement that delegates the key to IAM policies; without it the key could not be changed."""
    return {
        "Sid": "AccountAdministers",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
        "Action": "kms:*",
        "Resource": "*",
    }


def volume_statements(account: str, region: str) -> list[Statement]:
    """Return statements that let EC2 and file system services use the key for principals of the account.

    Node groups launch instances as Auto Scaling's service-linked role, which may not exist yet in a new account
    and so cannot be named here. AWS's own key for volumes (aws/ebs) has the same policy.
    """
    services = [f"{one}.{region}.amazonaws.com" for one in ("ec2", "fsx", "elasticfilesystem")]
    of_account = {"kms:CallerAccount": account, "kms:ViaService": services}
    return [
        {
            "Sid": "VolumesAndFileSystems",
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": list(KEY_USE),
            "Resource": "*",
            "Condition": {"StringEquals": of_account},
        },
        {
            "Sid": "VolumesAndFileSystemsAttach",
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": "kms:CreateGrant",
            "Resource": "*",
            "Condition": {
                "StringEquals": of_account,
                "Bool": {"kms:GrantIsForAWSResource": "true"},
            },
        },
    ]
