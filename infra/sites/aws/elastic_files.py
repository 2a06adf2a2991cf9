"""EFS: one file system in all zones, and an access point per claim."""

from __future__ import annotations

import json
from typing import Any, Final

import pulumi
from pulumi_aws import ec2, efs
from pulumi_aws import vpc as vpc_rules

from infra.domain import naming
from infra.domain.storage import TeamVolumes, VolumeSizes, provisioned
from infra.kubernetes.objects import Manifest, manifest
from infra.kubernetes.resources import KubernetesObject
from infra.sites.aws.outputs import Place
from infra.sites.aws.policy_documents import document

STORAGE_CLASS: Final = naming.EFS_STORAGE_CLASS
NFS_PORT: Final = 2049


def file_system_policy(file_system_arn: str) -> dict[str, Any]:
    """Return the policy: mounts require TLS, a mount target and an access point, without root access.

    The root directory holds every team's data, so it cannot be mounted.
    """

    def deny(sid: str, condition: dict[str, Any]) -> dict[str, Any]:
        return {
            "Sid": sid,
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": "elasticfilesystem:Client*",
            "Resource": file_system_arn,
            "Condition": condition,
        }

    return document(
        {
            "Sid": "NodesMount",
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
            "Resource": file_system_arn,
            # Without this condition, any AWS principal could.
            "Condition": {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
        },
        deny("DenyWithoutTls", {"Bool": {"aws:SecureTransport": "false"}}),
        deny("DenyRoot", {"Null": {"elasticfilesystem:AccessPointArn": "true"}}),
    )


def storage_class(file_system: pulumi.Input[str], *, keep: bool) -> Manifest:
    """Return the class with an access point per claim. The driver mounts over TLS by default.

    All access points use the training pods' user, so a recreated claim can read its old directory. Each access
    point's root directory separates teams.
    """
    user = str(naming.TRAINING_USER)
    return manifest(
        "storage.k8s.io/v1/StorageClass",
        STORAGE_CLASS,
        "storage",
        provisioner="efs.csi.aws.com",
        parameters={
            "provisioningMode": "efs-ap",
            "fileSystemId": file_system,
            "directoryPerms": "700",
            "uid": user,
            "gid": user,
            "basePath": "/claims",
            "subPathPattern": "${.PVC.namespace}/${.PVC.name}",
            "ensureUniqueDirectory": "false",
        },
        reclaimPolicy="Retain" if keep else "Delete",
        volumeBindingMode="Immediate",
    )


class EfsStorage(pulumi.ComponentResource):
    """The file system with a mount target per zone, and the class that claims use."""

    def __init__(
        self,
        name: str,
        place: Place,
        sizes: VolumeSizes,
        opts: pulumi.ResourceOptions,
        *,
        protect: bool = True,
    ) -> None:
        """Create a file system that all teams share; each claim mounts its own directory as root.

        `sizes`: of the claims; EFS grows and enforces none. `protect`: refuse to delete the file system, and keep
        it when it is dropped from the program.
        """
        super().__init__(naming.infra_type("AwsEfsStorage"), name, None, opts)
        self._place, self._sizes, self._keep = place, sizes, protect
        file_system = efs.FileSystem(
            f"{name}-files",
            encrypted=True,
            kms_key_id=place.data_key_arn,
            performance_mode="generalPurpose",
            throughput_mode="elastic",
            tags={"Name": f"{place.cluster.name}-teams"},
            opts=self._kept(),
        )
        policy = efs.FileSystemPolicy(
            f"{name}-policy",
            file_system_id=file_system.id,
            policy=file_system.arn.apply(lambda arn: json.dumps(file_system_policy(arn))),
            opts=self._kept(),
        )
        efs.BackupPolicy(
            f"{name}-backups",
            file_system_id=file_system.id,
            backup_policy=efs.BackupPolicyBackupPolicyArgs(status="ENABLED"),
            opts=self._kept(),
        )
        targets = self._mount_targets(name, file_system)
        self._class = KubernetesObject(
            f"{name}-class",
            storage_class(file_system.id, keep=protect),
            pulumi.ResourceOptions(
                parent=self,
                depends_on=[policy, *targets],
                # Kubernetes allows no change of it. Claims name the class and stay.
                replace_on_changes=["reclaimPolicy"],
                delete_before_replace=True,
            ),
        )
        self.register_outputs({"fileSystem": file_system.id, "storageClass": STORAGE_CLASS})

    def volumes(self, team: str) -> TeamVolumes:
        """Return volumes with an access point per claim, so no team sees another's files."""
        return provisioned(STORAGE_CLASS, self._sizes, self._class)

    def _kept(self) -> pulumi.ResourceOptions:
        keep = self._keep
        return pulumi.ResourceOptions(parent=self, protect=keep, retain_on_delete=keep)

    def _mount_targets(self, name: str, file_system: efs.FileSystem) -> list[pulumi.Resource]:
        own = pulumi.ResourceOptions(parent=self)
        group = ec2.SecurityGroup(
            f"{name}-servers",
            description="EFS mount targets",
            vpc_id=self._place.network.vpc_id,
            opts=own,
        )
        rule = vpc_rules.SecurityGroupIngressRule(
            f"{name}-from-nodes",
            security_group_id=group.id,
            referenced_security_group_id=self._place.cluster.security_group,
            ip_protocol="tcp",
            from_port=NFS_PORT,
            to_port=NFS_PORT,
            opts=own,
        )
        return [
            rule,
            *(
                efs.MountTarget(
                    f"{name}-{zone}",
                    file_system_id=file_system.id,
                    subnet_id=subnet,
                    security_groups=[group.id],
                    opts=own,
                )
                for zone, subnet in self._place.network.private_subnets.items()
            ),
        ]
