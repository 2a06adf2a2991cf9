"""The cluster: an existing one, or EKS with its access roles and system nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from pydantic import Field

from infra.sections.aws import Endpoint, KubernetesVersion, LogDays, RoleArn
from infra.sections.types import DnsLabel, Int, Str, StrictModel

END_OF_SUPPORT: Final[Mapping[str, str]] = {"1.34": "2026-12-02"}
"""Day on which EKS' standard support ends, of versions that are accepted but about to leave. Stacks do not pay for
extended support."""


class ExistingClusterConfig(StrictModel):
    """An existing cluster, reached by kubeconfig."""

    TAG: ClassVar[str] = "existing"

    provider: Literal["existing"]
    """The stack does not create it."""
    name: DnsLabel = Field(description="a DNS label")
    """Name for records and logs. A changed name creates every object again; `context` selects the cluster."""
    kubeconfig_path: Str | None = None
    """Kubeconfig, such as ~/.kube/config. Default: what KUBECONFIG names."""
    context: Str | None = None
    """Context, such as admin@training. Default: the kubeconfig's current one."""
    version: KubernetesVersion | None = None
    """Kubernetes version, such as 1.37; required with `scheduler: native`."""


class SystemNodesConfig(StrictModel):
    """On-demand CPU node group for the cluster's own controllers."""

    instance_types: tuple[Str, ...] = Field(default=("m6i.xlarge",), min_length=1)
    """Instance types of the group."""
    min: Int = Field(default=2, ge=1)
    """Minimum number of nodes; two survive the loss of a zone."""
    max: Int = Field(default=4, ge=1, le=1000)
    """Maximum number of nodes."""


class EksClusterConfig(StrictModel):
    """An EKS cluster that the stack creates."""

    TAG: ClassVar[str] = "eks"

    provider: Literal["eks"]
    """The stack creates it."""
    name: DnsLabel = Field(description="a DNS label")
    """Name of the cluster, and prefix of other names."""
    # The default is the newest that every add-on supports: Volcano ends there.
    version: Literal["1.34", "1.35", "1.36"] = "1.35"
    """Kubernetes version."""
    endpoint: Endpoint = ()
    """CIDR blocks that reach the Kubernetes API from the internet. Default: none, as with `private`."""
    admins: tuple[RoleArn, ...] = ()
    """IAM roles with full access, without the role that creates the cluster: EKS adds that one itself."""
    deployers: tuple[RoleArn, ...] = ()
    """IAM roles in the Kubernetes group trainyard:deployer."""
    viewers: tuple[RoleArn, ...] = ()
    """IAM roles in the group trainyard:viewer, for previews of pull requests; they read nothing in namespaces."""
    drift_detectors: tuple[RoleArn, ...] = ()
    """IAM roles that read the whole cluster, Secrets included, for `pulumi refresh`; must trust the main branch
    only."""
    log_retention_days: LogDays = 90
    """Days to keep control plane logs."""
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
