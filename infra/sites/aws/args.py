"""Arguments of `AwsStack`: sections of the stack file, and facts of the whole stack.

Plain values, because they decide which resources exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.domain.pools import Autoscaler, NodePool, Nodes
from infra.kubernetes.helm import Chart
from infra.sections.cluster import EksClusterConfig
from infra.sections.logs import CloudWatchConfig
from infra.sections.network import ExistingNetworkConfig, MadeNetworkConfig
from infra.sections.signatures import SignaturesConfig
from infra.sections.storage import BucketsConfig, StorageConfig
from infra.sites.aws.imds_sidecar import MetadataAccess
from infra.sites.aws.provider import ProviderArgs


@dataclass(frozen=True, kw_only=True)
class AwsStackArgs:
    site: ProviderArgs
    """Account, region, tags, and the cluster's name."""
    network: MadeNetworkConfig | ExistingNetworkConfig
    cluster: EksClusterConfig
    members: Mapping[str, tuple[str, ...]]
    """Kubernetes groups by the ARN of an IAM role that is a member of teams."""
    pools: tuple[NodePool, ...]
    autoscaler: Autoscaler
    charts: Mapping[str, Chart]
    """Charts by add-on: karpenter, karpenterCrd, clusterAutoscaler."""
    autoscaler_tag: str
    """Tag of Cluster Autoscaler's image, which matches the cluster's version."""
    metadata_access: MetadataAccess
    storage: StorageConfig
    buckets: BucketsConfig
    teams: tuple[str, ...]
    remote_secrets: Mapping[str, tuple[str, ...]]
    """Names of secrets in AWS Secrets Manager by team; teams without any are omitted."""
    signatures: SignaturesConfig | None
    """None: images need no signature."""
    registries: tuple[str, ...]
    """Allowed registries of the teams' images, whose signatures are read."""
    run_logs: CloudWatchConfig | None
    """None: logs of runs do not go to CloudWatch."""
    log_shipper: tuple[str, str]
    """Namespace and service account of the pods that write logs of runs."""
    block_volumes: bool
    """Whether something in the cluster needs ReadWriteOnce volumes."""
    dcgm_address: str
    """Address of each node's DCGM engine; empty: the node monitoring agent starts one."""
    protect: bool
    """Refuse to delete buckets, keys, file systems and the cluster, and keep them if the program drops them."""

    def rendered_as(self, nodes: Nodes) -> tuple[NodePool, ...]:
        return tuple(pool for pool in self.pools if pool.nodes is nodes)
