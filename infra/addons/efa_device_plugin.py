"""AWS's device plugin for EFA: offers a node's adapters as `vpc.amazonaws.com/efa`."""

from __future__ import annotations

from typing import Final

from infra.addons import controllers, gpu_nodes
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.model import WHOLE, AddOn, Image, Installable
from infra.domain import naming
from infra.domain.pools import Network

NAME: Final = "efaDevicePlugin"


def plan(args: GpuNodesArgs) -> Installable:
    """Return the release, on nodes of EFA pools only.

    Instance types come from the pools, because the chart's list is as old as the chart.
    """
    pools = [pool for pool in args.gpu_pools if pool.network is Network.EFA]
    types = sorted({name for pool in pools for name in pool.instance_types})
    return Installable(
        add_on=NAME,
        values={
            "supportedInstanceLabels": {"keys": [naming.INSTANCE_TYPE], "values": types},
            "tolerations": gpu_nodes.tolerations(pools),
            "resources": controllers.resources("10m", "64Mi"),
        },
    )


EFA_DEVICE_PLUGIN: Final = AddOn(
    name=NAME,
    summary="Offers EFA adapters to pods.",
    chart="aws-efa-k8s-device-plugin",
    repository="https://aws.github.io/eks-charts",
    version="v0.5.20",
    app_version="v0.5.13",
    namespace="kube-system",
    kubernetes=("1.24", ""),
    images=(
        # AWS's own registry, which nodes on EKS may read.
        Image(
            registry="602401143452.dkr.ecr.us-west-2.amazonaws.com",
            repository="eks/aws-efa-k8s-device-plugin",
            values={"image.repository": WHOLE},
        ),
    ),
    plan=plan,
)
