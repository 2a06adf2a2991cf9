"""The cluster: an existing one, or EKS with its access roles and system nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from pydantic import Field

from infra.sections.aws_types import Endpoint, KubernetesVersion, LogDays, RoleArn
from infra.sections.types import DnsLabel, Int, Str, StrictModel

END_OF_SUPPORT: Final[Mapping[str, str]] = {"1.34": "2026-12-02"}
"""Day on which EKS' standard support ends, of versions that are accepted but about to leave. Stacks do not pay for
extended support."""


class ExistingClusterConfig(StrictModel):
    """An existing cluster, reached by kubeconfig."""

    TAG: ClassVar[str] = "existing"

    provider: Literal["existing"]
    """`existing`: a cluster that the stack does not create."""
    name: DnsLabel = Field(description="a DNS label")
    """Name of the cluster, for the Platform record, logs and Pulumi: an update after a changed name creates every
    object again, one after a changed kubeconfig, context or endpoint does not. `context` selects the cluster."""
    kubeconfig_path: Str | None = None
    """Path of a kubeconfig, such as ~/.kube/config. Default: what KUBECONFIG names."""
    context: Str | None = None
    """Context in the kubeconfig, such as admin@training. Default: the kubeconfig's current context."""
    version: KubernetesVersion | None = None
    """Kubernetes version, such as 1.37. Required with `scheduler: native`, whose API depends on it."""


class SystemNodesConfig(StrictModel):
    """On-demand CPU node group for the cluster's own controllers."""

    instance_types: tuple[Str, ...] = Field(default=("m6i.xlarge",), min_length=1)
    """Instance types of the group."""
    min: Int = Field(default=2, ge=1)
    """Minimum number of nodes; with two, in two zones, DNS survives the loss of one."""
    max: Int = Field(default=4, ge=1, le=1000)
    """Maximum number of nodes."""


class EksClusterConfig(StrictModel):
    """An EKS cluster that the stack creates."""

    TAG: ClassVar[str] = "eks"

    provider: Literal["eks"]
    """`eks`: a cluster that the stack creates."""
    name: DnsLabel = Field(description="a DNS label")
    """Name of the EKS cluster, and of everything that the stack names after it."""
    # The default is the newest that every add-on supports: Volcano ends there.
    version: Literal["1.34", "1.35", "1.36"] = "1.35"
    """Kubernetes version."""
    endpoint: Endpoint = ()
    """CIDR blocks that may reach the Kubernetes API from the internet. Default: none, as with `private`."""
    admins: tuple[RoleArn, ...] = ()
    """IAM roles with full access to the cluster, besides the role that creates it: EKS admits that one
    automatically and rejects it here."""
    deployers: tuple[RoleArn, ...] = ()
    """IAM roles in the Kubernetes group trainyard:deployer."""
    viewers: tuple[RoleArn, ...] = ()
    """IAM roles in the Kubernetes group trainyard:viewer, for previews of pull requests: they read nodes, queues,
    roles and admission policies, and neither Secrets nor anything else in a namespace."""
    drift_detectors: tuple[RoleArn, ...] = ()
    """IAM roles that read the whole cluster, including Secrets, as `pulumi refresh` requires. Must trust the main
    branch only."""
    log_retention_days: LogDays = 90
    """Days that control plane logs are kept."""
    system_nodes: SystemNodesConfig = SystemNodesConfig()
    """On-demand CPU node group for the cluster's own controllers."""


def support_warning(cluster: EksClusterConfig) -> str | None:
    """Return a warning if the end of EKS' standard support for the version is known to be near."""
    end = END_OF_SUPPORT.get(cluster.version)
    if end is None:
        return None
    return (
        f"cluster.version: EKS ends its standard support of {cluster.version} on {end} and then upgrades the "
        "cluster at a time of its own; choose 1.35 or newer, one minor version at a time"
    )
