"""What a stack decides about its AWS half. Plain values: they say which resources there are."""

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
    """What a stack decides about its cluster; see `ClusterArgs` and `SystemNodesArgs`."""

    version: str
    public_cidrs: tuple[str, ...]
    admins: tuple[str, ...]
    deployers: tuple[str, ...]
    viewers: tuple[str, ...]
    log_retention_days: int
    system_types: tuple[str, ...]
    system_min: int
    system_max: int


@dataclass(frozen=True, kw_only=True)
class LustreChoice:
    """One file system of FSx for Lustre per team."""

    zone: str
    throughput_per_tib: int
    """MB/s."""


@dataclass(frozen=True, kw_only=True)
class EfsChoice:
    """One EFS file system, an access point per claim."""


@dataclass(frozen=True, kw_only=True)
class SignatureChoice:
    """Images are signed, so that policy-controller reads signatures from the account's registry."""

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
    """All that an AWS stack is made of."""

    site: ProviderArgs
    """Account, region, tags, and the cluster's name."""
    network: NetworkArgs | ExistingNetworkArgs
    cluster: ClusterChoice
    pools: tuple[NodePool, ...]
    autoscaler: Autoscaler
    charts: Mapping[str, Chart]
    """Of what makes nodes or sizes their groups: karpenter, karpenterCrd, clusterAutoscaler."""
    autoscaler_tag: str
    """Of Cluster Autoscaler's image, which goes with the cluster's version."""
    metadata_access: MetadataAccess
    storage: LustreChoice | EfsChoice | NamedStorageClass
    sizes: VolumeSizes
    """Of each team's volumes."""
    bucket_prefix: str
    old_checkpoint_days: int
    teams: tuple[str, ...]
    remote_secrets: Mapping[str, tuple[str, ...]]
    """By team, the names of its secrets in AWS Secrets Manager; teams without any are left out."""
    signatures: SignatureChoice | None
    """None: images need no signature."""
    run_logs: RunLogsChoice | None
    """None: they go elsewhere, or nowhere."""
    block_volumes: bool
    """Whether something in the cluster needs volumes that one node writes."""
    dcgm_address: str
    """Where each node's DCGM engine answers; empty: the node monitoring agent brings one."""
    protect: bool
    """Keep buckets, keys, file systems and the cluster whatever happens to the program."""

    def rendered_as(self, nodes: Nodes) -> tuple[NodePool, ...]:
        """Pools whose nodes come from there."""
        return tuple(pool for pool in self.pools if pool.nodes is nodes)
