"""Arguments of `AwsStack`. Plain values, because they decide which resources exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.domain.pools import Autoscaler, NodePool, Nodes
from infra.domain.storage import NamedStorageClass, VolumeSizes
from infra.kubernetes.helm import Chart
from infra.sites.aws.existing_network import ExistingNetworkArgs
from infra.sites.aws.imds_sidecar import MetadataAccess
from infra.sites.aws.network import NetworkArgs
from infra.sites.aws.provider import ProviderArgs


@dataclass(frozen=True, kw_only=True)
class ClusterChoice:
    """The cluster's settings; see `ClusterArgs` and `SystemNodesArgs`."""

    version: str
    public_cidrs: tuple[str, ...]
    admins: tuple[str, ...]
    deployers: tuple[str, ...]
    viewers: tuple[str, ...]
    drift_detectors: tuple[str, ...]
    members: Mapping[str, tuple[str, ...]]
    log_retention_days: int
    system_types: tuple[str, ...]
    system_min: int
    system_max: int


@dataclass(frozen=True, kw_only=True)
class LustreChoice:
    """One FSx for Lustre file system per team."""

    zone: str
    throughput_per_tib: int
    """MB/s."""


@dataclass(frozen=True, kw_only=True)
class EfsChoice:
    """One EFS file system, an access point per claim."""


@dataclass(frozen=True, kw_only=True)
class SignatureChoice:
    """policy-controller reads image signatures from the account's registry."""

    registries: tuple[str, ...]
    """Allowed registries of the teams' images, whose signatures are read."""
    kms_key_arn: str | None
    """The key that signs; None: signatures are keyless."""


@dataclass(frozen=True, kw_only=True)
class RunLogsChoice:
    """Logs of runs are kept in CloudWatch."""

    shipper: tuple[str, str]
    """Namespace and service account of the pods that write them."""
    retention_days: int


@dataclass(frozen=True, kw_only=True)
class AwsStackArgs:
    """Everything that decides the AWS resources of a stack."""

    site: ProviderArgs
    """Account, region, tags, and the cluster's name."""
    network: NetworkArgs | ExistingNetworkArgs
    cluster: ClusterChoice
    pools: tuple[NodePool, ...]
    autoscaler: Autoscaler
    charts: Mapping[str, Chart]
    """Charts by add-on: karpenter, karpenterCrd, clusterAutoscaler."""
    autoscaler_tag: str
    """Tag of Cluster Autoscaler's image, which matches the cluster's version."""
    metadata_access: MetadataAccess
    storage: LustreChoice | EfsChoice | NamedStorageClass
    sizes: VolumeSizes
    """Sizes of each team's volumes."""
    bucket_prefix: str
    old_checkpoint_days: int
    teams: tuple[str, ...]
    remote_secrets: Mapping[str, tuple[str, ...]]
    """Names of secrets in AWS Secrets Manager by team; teams without any are omitted."""
    signatures: SignatureChoice | None
    """None: images need no signature."""
    run_logs: RunLogsChoice | None
    """None: logs of runs do not go to CloudWatch."""
    block_volumes: bool
    """Whether something in the cluster needs ReadWriteOnce volumes."""
    dcgm_address: str
    """Address of each node's DCGM engine; empty: the node monitoring agent starts one."""
    protect: bool
    """Refuse to delete buckets, keys, file systems and the cluster, and keep them if the program drops them."""

    def rendered_as(self, nodes: Nodes) -> tuple[NodePool, ...]:
        """Return the pools whose nodes have this source."""
        return tuple(pool for pool in self.pools if pool.nodes is nodes)
