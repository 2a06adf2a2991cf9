"""FSx for Lustre: a file system per team, linked to its prefixes of the buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pulumi
from pulumi_aws import cloudwatch, ec2, fsx
from pulumi_aws import vpc as vpc_rules

from infra.domain import naming, quantity
from infra.domain.storage import TeamVolumes, Volume, VolumeSizes
from infra.kubernetes.objects import Manifest, manifest
from infra.kubernetes.resources import KubernetesObject
from infra.sections.storage import StorageConfig
from infra.sites.aws.bucket_access import team_prefix
from infra.sites.aws.buckets import Buckets
from infra.sites.aws.outputs import Place
from infra.sites.aws.run_log_access import lustre_group

LUSTRE_PORTS: Final = ((988, 988), (1018, 1023))
"""First and last port of Lustre. https://docs.aws.amazon.com/fsx/latest/LustreGuide/limit-access-security-groups.html"""

_VERSION: Final = "2.15"
"""Lustre version: supported by the AL2023 client, required for metadata configurations."""
_LOG_DAYS: Final = 90
"""Failed exports are looked up within days; the file systems' own state says what is still to be exported."""
_ALL_EVENTS: Final = ("NEW", "CHANGED", "DELETED")

DRIVER: Final = "fsx.csi.aws.com"

SMALLEST_GIB: Final = 1200
STEP_GIB: Final = 2400
"""Sizes of a PERSISTENT_2 SSD file system: 1,200 GiB, 2,400 GiB and multiples of that.

https://docs.aws.amazon.com/fsx/latest/APIReference/API_CreateFileSystem.html, StorageCapacity.
"""


class LustreStorage(pulumi.ComponentResource):
    """A file system per team, reachable through the team's two claims only."""

    def __init__(
        self,
        name: str,
        place: Place,
        storage: StorageConfig,
        teams: Sequence[str],
        buckets: Buckets,
        opts: pulumi.ResourceOptions,
        *,
        protect: bool = True,
    ) -> None:
        """Create them in the zone of the GPU pools.

        `place`: its key is that of the file systems, of their logs (`run_log_access.key_statement`) and of the
        buckets. `protect`: refuse to delete the file systems, and keep them when they are dropped.
        """
        super().__init__(naming.infra_type("AwsLustreStorage"), name, None, opts)
        assert storage.fsx
        self._place, self._keep = place, protect
        self._fsx, self._sizes, self._buckets = storage.fsx, storage.sizes, buckets
        group = self._security_group(name)
        among_servers, with_nodes = self._rules(name, group)
        # FSx would create a group without a retention limit and without the stack's key.
        self._logs = cloudwatch.LogGroup(
            f"{name}-logs",
            name=lustre_group(place.cluster.name),
            kms_key_id=place.data_key_arn,
            retention_in_days=_LOG_DAYS,
            opts=self._own(),
        )
        self._volumes: dict[str, TeamVolumes] = {}
        file_systems: dict[str, pulumi.Output[str]] = {}
        for team in teams:
            file_system = self._file_system(f"{name}-{team}", team, group, among_servers)
            file_systems[team] = file_system.id
            checkpoints, datasets = (
                self._directory(f"{name}-{team}", team, claim, file_system, with_nodes)
                for claim in (naming.CHECKPOINTS_CLAIM, naming.DATASETS_CLAIM)
            )
            self._volumes[team] = TeamVolumes(checkpoints=checkpoints, datasets=datasets)
        self.register_outputs({"fileSystems": file_systems})

    def volumes(self, team: str) -> TeamVolumes:
        """Return the two directories of the team's file system."""
        return self._volumes[team]

    def _own(self, *needs: pulumi.Resource, **more: Any) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(needs), **more)

    def _kept(self, *needs: pulumi.Resource) -> pulumi.ResourceOptions:
        keep = self._keep
        return self._own(*needs, protect=keep, retain_on_delete=keep)

    def _security_group(self, name: str) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(
            f"{name}-servers",
            description="Lustre servers and the nodes that mount them",
            vpc_id=self._place.network.vpc_id,
            opts=self._own(),
        )

    def _rules(
        self, name: str, servers: ec2.SecurityGroup
    ) -> tuple[list[pulumi.Resource], list[pulumi.Resource]]:
        """Allow connections among servers, and between servers and nodes in both directions.

        Return both: the second group of rules waits for the control plane, for which file systems need not wait.
        """
        nodes = self._place.cluster.security_group
        found: tuple[list[pulumi.Resource], list[pulumi.Resource]] = ([], [])
        directions = (
            ("from-servers", vpc_rules.SecurityGroupIngressRule, servers.id, servers.id),
            ("from-nodes", vpc_rules.SecurityGroupIngressRule, servers.id, nodes),
            ("to-servers", vpc_rules.SecurityGroupEgressRule, servers.id, servers.id),
            ("to-nodes", vpc_rules.SecurityGroupEgressRule, servers.id, nodes),
            ("nodes-from-servers", vpc_rules.SecurityGroupIngressRule, nodes, servers.id),
        )
        for direction, rule, group, peer in directions:
            for first, last in LUSTRE_PORTS:
                made = rule(
                    f"{name}-{direction}-{first}",
                    security_group_id=group,
                    referenced_security_group_id=peer,
                    ip_protocol="tcp",
                    from_port=first,
                    to_port=last,
                    opts=self._own(),
                )
                found["nodes" in direction].append(made)
        return found

    def _file_system(
        self, name: str, team: str, servers: ec2.SecurityGroup, rules: list[pulumi.Resource]
    ) -> fsx.LustreFileSystem:
        return fsx.LustreFileSystem(
            f"{name}-files",
            deployment_type="PERSISTENT_2",
            file_system_type_version=_VERSION,
            storage_type="SSD",
            storage_capacity=capacity_gib(self._sizes),
            per_unit_storage_throughput=self._fsx.throughput_per_tib,
            data_compression_type="LZ4",
            metadata_configuration=fsx.LustreFileSystemMetadataConfigurationArgs(mode="AUTOMATIC"),
            # Failed exports to a bucket are logged.
            log_configuration=fsx.LustreFileSystemLogConfigurationArgs(
                destination=self._logs.arn, level="WARN_ERROR"
            ),
            # FSx does not back up file systems that are linked to buckets; the buckets are the copy.
            automatic_backup_retention_days=0,
            kms_key_id=self._place.data_key_arn,
            subnet_ids=self._place.network.private_subnets[self._fsx.zone],
            security_group_ids=[servers.id],
            tags={"Name": f"{self._place.cluster.name}-team-{team}", naming.TEAM: team},
            # FSx checks the ports among its servers when it creates the file system.
            opts=self._kept(*rules),
        )

    def _directory(
        self,
        name: str,
        team: str,
        claim: str,
        file_system: fsx.LustreFileSystem,
        reach: list[pulumi.Resource],
    ) -> Volume:
        """Return the volume of `/CLAIM`, which needs its link and what lets nodes reach the servers.

        Both directories are exported on write. That of the data sets is imported, too, and contents load on first
        read; that of the checkpoints only by a new file system, to resume from existing ones.
        """
        datasets = claim == naming.DATASETS_CLAIM
        bucket = self._buckets.datasets if datasets else self._buckets.checkpoints
        size = self._sizes.datasets if datasets else self._sizes.checkpoints
        # The name is plain; depending on the ARN waits for the bucket.
        uri = pulumi.Output.from_input(bucket.arn).apply(
            lambda _: f"s3://{bucket.name}/{team_prefix(team)}"
        )
        imports = fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(events=_ALL_EVENTS)
        # FSx creates the directory.
        link = fsx.DataRepositoryAssociation(
            f"{name}-{claim}-link",
            file_system_id=file_system.id,
            file_system_path=f"/{claim}",
            data_repository_path=uri,
            batch_import_meta_data_on_create=True,
            delete_data_in_filesystem=False,
            s3=fsx.DataRepositoryAssociationS3Args(
                auto_export_policy=fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(
                    events=_ALL_EVENTS
                ),
                auto_import_policy=imports if datasets else None,
            ),
            tags={naming.TEAM: team},
            opts=self._own(),
        )
        manifest = persistent_volume(
            team,
            claim,
            size,
            file_system=file_system.id,
            dns_name=file_system.dns_name,
            mount_name=file_system.mount_name,
        )
        made = KubernetesObject(f"{name}-{claim}-volume", manifest, self._kept(link, *reach))
        return Volume(size=size, storage_class="", name=volume_name(team, claim), needs=(made,))


def capacity_gib(sizes: VolumeSizes) -> int:
    """Return the size in GiB of the smallest file system that fits both volumes."""
    needed = quantity.bytes_(sizes.checkpoints) + quantity.bytes_(sizes.datasets)
    if needed <= SMALLEST_GIB * quantity.GIB:
        return SMALLEST_GIB
    return -(-needed // (STEP_GIB * quantity.GIB)) * STEP_GIB


def volume_name(team: str, claim: str) -> str:
    return f"{naming.namespace(team)}-{claim}"


def persistent_volume(
    team: str,
    claim: str,
    size: str,
    *,
    file_system: pulumi.Input[str],
    dns_name: pulumi.Input[str],
    mount_name: pulumi.Input[str],
) -> Manifest:
    """Return the volume of directory `/CLAIM` of a team's file system, bound to that team's claim.

    The driver mounts `DNSNAME@tcp:/MOUNTNAME`, so a longer mount name is a directory below it. The handle must
    differ between the two volumes of a file system, or a pod with both never starts (aws-fsx-csi-driver issue
    328).
    """
    csi: dict[str, Any] = {
        "driver": DRIVER,
        "volumeHandle": pulumi.Output.concat(file_system, "-", claim),
        # Root owns a new file system, and training pods run as another user. The kubelet applies their
        # fsGroup only where a volume names a type and, among others, ReadWriteOnce; the driver uses the
        # first mode.
        "fsType": "lustre",
        "volumeAttributes": {
            "dnsname": dns_name,
            "mountname": pulumi.Output.concat(mount_name, "/", claim),
        },
    }
    return manifest(
        "v1/PersistentVolume",
        volume_name(team, claim),
        "storage",
        team=team,
        spec={
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "mountOptions": ["flock"],
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": naming.namespace(team),
                "name": claim,
            },
            "csi": csi,
        },
    )
